#!/usr/bin/env bash
# Tries the README's two commands where nothing is installed: in new Debian roots, on the committed
# files.
set -euo pipefail

usage() {
  cat <<'USAGE'
Usage: sudo tools/fresh.sh [OPTION...] [SCENARIO...]      (or: make fresh ARGS="...")

Makes a pristine Debian root, clones the committed state of this checkout into it and runs there what the README says,
with no access to what is installed here. Needs root, debootstrap, and 12 GB of disk. Nothing outside of the cache folder is
written, nothing is mounted outside of the script's own mount namespace, and roots are removed at the end, also after Ctrl-C.

Scenarios, in this order; without names those marked * run:
* user      Debian 12, a user without sudo: each command ends with one sentence, which names what root has to run
* trixie    Debian 13 as root, whose only Python is 3.13: make nerf, with the newest TensorFlow, and make test-release
* nerf      Debian 12 as root: make nerf, and its pictures are there
* test      make test, in the root of nerf
* onednn=0  make test-ops there with TF_ENABLE_ONEDNN_OPTS=0
* avx2      ... with METAL_OPS_SIMD=avx2
* emu128    ... with METAL_OPS_SIMD=emu128, which any processor has
  onednn=1  ... with TF_ENABLE_ONEDNN_OPTS=1
  sse4      ... with METAL_OPS_SIMD=sse4
  alone     Debian 12 as root, a root of its own: make test first, then make nerf
  visitor   Debian 12, a user without sudo where root has installed the packages (tools/setup.sh): make nerf
  all       all of them

Options:
  --cold           download packages anew, to time what a first visitor waits for; else apt's and pip's downloads are kept
  --keep           leave the roots in the cache folder, for a look or for --again
  --again          go on in roots that --keep has left, with their clones as they are
  --mirror=URL     Debian mirror; by default that of this machine's apt
  --cache=FOLDER   default ${XDG_CACHE_HOME:-~/.cache}/metal_ops/fresh: base roots, downloads, roots, logs; safe to remove
  --help

Carried into the roots: apt's mirror and proxies, pip's configuration and local folders that it names, CA certificates,
proxy and certificate variables. A step's time is wall-clock and, in brackets, CPU seconds of all its processes; on a busy
machine only the second means something. Lines of the logs start with the seconds since the step began.
USAGE
}

die() { echo "fresh.sh: $*" >&2; exit 2; }
repository=$(cd "$(dirname "$0")/.." && pwd)
quick=(user trixie nerf test onednn=0 avx2 emu128)
every=(user trixie nerf test onednn=0 avx2 emu128 onednn=1 sse4 alone visitor)

scenarios=() cold= keep= again= mirror= inside=
cache=${XDG_CACHE_HOME:-$HOME/.cache}/metal_ops/fresh
for argument; do
  case $argument in
    --help | -h) usage; exit 0 ;;
    --cold) cold=1 ;;
    --keep) keep=1 ;;
    --again) again=1 keep=1 ;;
    --mirror=?*) mirror=${argument#*=} ;;
    --cache=?*) cache=${argument#*=} ;;
    --inside) inside=1 ;;
    -*) die "unknown option '$argument'; --help lists them." ;;
    all) scenarios=("${every[@]}") ;;
    *)
      case " ${every[*]} " in *" $argument "*) ;; *) die "unknown scenario '$argument'; there are ${every[*]} and all." ;; esac
      scenarios+=("$argument") ;;
  esac
done
[ ${#scenarios[@]} -gt 0 ] || scenarios=("${quick[@]}")
wanted() { case " ${scenarios[*]} " in *" $1 "*) return 0 ;; esac; return 1; }

# ---- outside: checks, and the rest is removed ------------------------------------------------------------------------
if [ -z "$inside" ]; then
  [ "$(id -u)" -eq 0 ] || die "making a root needs root; run 'sudo tools/fresh.sh'."
  command -v debootstrap >/dev/null || die "debootstrap is missing; run 'apt-get install debootstrap'."
  unshare --mount --pid --fork true 2>/dev/null || die "mount and process namespaces are not permitted here (a container without CAP_SYS_ADMIN?)."
  git -C "$repository" rev-parse --verify -q HEAD >/dev/null || die "$repository is no git checkout."
  mkdir -p "$cache"/{roots,logs,pip,apt-bookworm/partial,apt-trixie/partial}
  exec 8>"$cache/lock"
  flock -n 8 || die "another fresh.sh works in $cache; name another folder with --cache."
  clean_up() {
    # The namespace is gone and every mount with it: the files in the roots are theirs.
    if [ -z "$keep" ]; then rm -rf --one-file-system "$cache/roots"; fi
  }
  trap clean_up EXIT
  # With its first process the namespace ends, and all that runs in it. unshare itself would not listen to less.
  trap 'kill -KILL -- "-$child" 2>/dev/null || true; wait "$child" 2>/dev/null || true; echo "fresh.sh: interrupted" >&2; exit 130' INT TERM HUP
  set -m  # the child gets signals from here, and not from the terminal too
  unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" --inside "$@" </dev/null &
  child=$!
  wait "$child" && code=0 || code=$?
  exit "$code"
fi

# ---- inside: process 1 of its own namespaces --------------------------------------------------------------------------
cd /
results=() failed=

seconds() { printf '%d min %02d s' $(($1 / 60)) $(($1 % 60)); }

# This machine's network settings, for the shell in a root.
carried_environment() {
  env | grep -iE '^((https?|ftp|no|all)_proxy|PIP_[A-Z_]*|SSL_CERT_[A-Z]*|[A-Z_]*(CA_BUNDLE|CAINFO)|OPENBLAS_[A-Z0-9_]*)=' || true
}

host_mirror() {  # $1: Debian or Debian-Security
  apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 2>/dev/null | sed -n "s/^Debian|$1|//p" | head -1
}

configure_network() {  # $1: root, $2: suite
  local root=$1 suite=$2 main security path
  main=${mirror:-$(host_mirror Debian)} main=${main:-http://deb.debian.org/debian}
  security=$(host_mirror Debian-Security) security=${security:-http://deb.debian.org/debian-security}
  printf 'deb %s %s main\n' "$main" "$suite" "$main" "$suite-updates" "$security" "$suite-security" >"$root/etc/apt/sources.list"
  apt-config dump | grep -iE '^Acquire::.*(Proxy|CaInfo|Verify|Retries)' >"$root/etc/apt/apt.conf.d/90host" || true
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  for path in /etc/ssl/certs/ca-certificates.crt /etc/pip.conf /etc/xdg/pip; do
    [ ! -e "$path" ] || cp -rL --parents "$path" "$root/"
  done
  for path in "$HOME/.pip/pip.conf" "$HOME/.config/pip/pip.conf"; do
    [ ! -e "$path" ] || install -D -m 644 "$path" "$root$home/.config/pip/pip.conf"
  done
}

mount_root() {  # $1: root, $2: suite
  local root=$1 node path
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    touch "$root/dev/$node" && mount --bind "/dev/$node" "$root/dev/$node"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  mkdir "$root/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  if [ -z "$cold" ]; then
    mount --bind "$cache/apt-$2" "$root/var/cache/apt/archives"
    mkdir -p "$root/var/cache/pip" && mount --bind "$cache/pip" "$root/var/cache/pip"
  fi
  # Folders that pip's configuration names, read-only; the files of an index lie beside its folder of pages.
  for path in $(cat "$root"{/etc,/etc/xdg/pip,"$home/.config/pip"}/pip.conf 2>/dev/null; carried_environment); do
    path=${path#*=} path=${path#file://} path=${path%/} path=${path%/simple}
    if [ -d "$path" ] && [ -z "$(ls -A "$root$path" 2>/dev/null)" ]; then
      mkdir -p "$root$path" && mount --bind "$path" "$root$path" && mount -o remount,bind,ro "$root$path"
    fi
  done
}

# A pristine root with the README's requirements, git and make, from a tar file that is made once per suite and
# month.
base() {  # $1: suite
  local tar="$cache/base-$1.tar" root="$cache/roots/base-$1" start=$SECONDS main
  [ -z "$(find "$tar" -mtime -30 2>/dev/null)" ] || return 0
  echo "  debootstrap $1"
  main=${mirror:-$(host_mirror Debian)} main=${main:-http://deb.debian.org/debian}
  rm -rf --one-file-system "$root"
  if ! debootstrap --variant=minbase --include=ca-certificates,git,make "$1" "$root" "$main" >"$cache/logs/base-$1.log" 2>&1; then
    tail -5 "$cache/logs/base-$1.log" >&2
    die "debootstrap failed; $cache/logs/base-$1.log says why."
  fi
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -cf "$tar.new" . && mv "$tar.new" "$tar" && rm -rf --one-file-system "$root"
  echo "  debootstrap $1: $(seconds $((SECONDS - start)))"
}

# Makes and mounts a root with a clone, which belongs to the user that works in it.
declare -A ready=()
enter() {  # $1: name, $2: suite, $3: root or visitor
  root="$cache/roots/$1" user=$3 suite=$2
  [ "$user" = root ] && home=/root || home=/home/$user
  [ -z "${ready[$1]:-}" ] || return 0
  ready[$1]=1
  if [ -z "$again" ] || [ ! -d "$root$home/metal_ops" ]; then
    base "$2"
    rm -rf --one-file-system "$root" && mkdir -p "$root"
    tar -C "$root" -xf "$cache/base-$2.tar"
    [ "$user" = root ] || chroot "$root" useradd -m "$user"
    configure_network "$root" "$2"
    git -c safe.directory='*' clone -q "file://$repository" "$root$home/metal_ops"
    [ "$user" = root ] || chroot "$root" chown -R "$user:" "$home"
  fi
  mount_root "$root" "$2"
}

# Runs a command in the clone, as the user of the root; the log gets a time in front of every line.
inside_root() {  # $1: log, $2...: NAME=value and the command
  local log=$1 begin=$SECONDS who=() variables=() code=0
  shift
  mapfile -t variables < <(carried_environment)
  [ "$user" = root ] || who=(--userspec="$user:$user")
  if [ "$user" = root ] && [ -z "$cold" ]; then variables+=("PIP_CACHE_DIR=/var/cache/pip"); fi
  TIMEFORMAT='%U %S'
  { time { chroot ${who[@]+"${who[@]}"} "$root" /usr/bin/env -i HOME="$home" USER="$user" LANG=C.UTF-8 TERM=dumb \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${variables[@]}" \
    sh -c 'cd ~/metal_ops && exec "$@"' sh env "$@" 2>&1 </dev/null 8>&- || echo $? >"$log.code"; } |
    while IFS= read -r line; do printf '%5d  %s\n' $((SECONDS - begin)) "$line"; done >"$log"; } 2>"$log.time"
  [ ! -e "$log.code" ] || code=$(cat "$log.code")
  cpu=$(awk '{ printf "%d", $1 + $2 }' "$log.time")
  rm -f "$log.code" "$log.time"
  wall=$((SECONDS - begin))
  return "$code"
}

report() {  # $1: scenario, $2: command, $3: ok or the error, $4: log
  local line
  line=$(printf '%-9s %-52s %s (%d s)  %s' "$1" "$2" "$(seconds "$wall")" "$cpu" "$3")
  results+=("$line")
  echo "$line"
  if [ "$3" != ok ]; then
    failed=1
    tail -15 "$4" | sed 's/^/    | /'
    echo "    whole log: $4"
  fi
}

# ends_well <scenario> <file that is there then> <command>...
ends_well() {
  local scenario=$1 product=$2 log code=0
  shift 2
  log="$cache/logs/$scenario-$(basename "${@: -1}").log"
  echo "$scenario: $*"
  inside_root "$log" "$@" || code=$?
  # Where the time went.
  grep -E '^ *[0-9]+  (metal_ops: |  (link|compile TensorFlow)|Scene |Pictures|[0-9]+ (passed|failed))' "$log" | sed 's/^/    | /' || true
  if [ "$code" -ne 0 ]; then
    report "$scenario" "$*" "exit code $code" "$log"
  elif [ ! -s "$root$home/metal_ops/$product" ]; then
    report "$scenario" "$*" "$product is missing" "$log"
  else
    report "$scenario" "$*" ok "$log"
  fi
}

# ends_with_a_sentence <scenario> <words of the sentence> <command>...: one line that is not make's own, and
# failure.
ends_with_a_sentence() {
  local scenario=$1 says=$2 log code=0 said before after
  shift 2
  log="$cache/logs/$scenario-$(basename "${@: -1}").log"
  echo "$scenario: $*"
  before=$(chroot "$root" dpkg-query -f '${Package}\n' -W)
  inside_root "$log" "$@" || code=$?
  after=$(chroot "$root" dpkg-query -f '${Package}\n' -W)
  said=$(sed -E 's/^ *[0-9]+  //' "$log" | grep -v '^make: \*\*\*' || true)
  echo "    | $said"
  if [ "$code" -eq 0 ]; then
    report "$scenario" "$*" "succeeded, which it cannot have" "$log"
  elif [ "$(printf '%s\n' "$said" | wc -l)" -ne 1 ] || [[ $said != "metal_ops: "* ]]; then
    report "$scenario" "$*" "not one sentence" "$log"
  elif [[ $said != *$says* ]]; then
    report "$scenario" "$*" "does not say '$says'" "$log"
  elif [ "$before" != "$after" ]; then
    report "$scenario" "$*" "installed packages all the same" "$log"
  else
    report "$scenario" "$*" ok "$log"
  fi
}

picture=runs/still_life/comparison.png
library=python/metal_ops/_metal_ops.so
changes=$(git -c safe.directory='*' -C "$repository" status --porcelain | wc -l)
echo "commit $(git -c safe.directory='*' -C "$repository" rev-parse --short HEAD), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg), logs in $cache/logs"
[ "$changes" -eq 0 ] || echo "not tried: $changes files that are changed and not committed"

if wanted user; then
  enter user bookworm visitor
  for goal in nerf test; do ends_with_a_sentence user "run 'sudo apt-get install" make $goal; done
fi
if wanted trixie; then
  enter trixie trixie root
  ends_well trixie "$picture" make nerf
  ends_well trixie python/metal_ops/libmetal_device.so make test-release
fi
if wanted nerf; then enter main bookworm root; ends_well nerf "$picture" make nerf; fi
if wanted test; then enter main bookworm root; ends_well test "$library" make test; fi
for condition in onednn=0:TF_ENABLE_ONEDNN_OPTS=0 avx2:METAL_OPS_SIMD=avx2 emu128:METAL_OPS_SIMD=emu128 \
  onednn=1:TF_ENABLE_ONEDNN_OPTS=1 sse4:METAL_OPS_SIMD=sse4; do
  if wanted "${condition%%:*}"; then
    enter main bookworm root
    ends_well "${condition%%:*}" "$library" "${condition#*:}" make test-ops
  fi
done
if wanted alone; then
  enter alone bookworm root
  ends_well alone "$library" make test
  ends_well alone "$picture" make nerf
fi
if wanted visitor; then
  enter visitor bookworm visitor
  user=root home=/home/visitor
  ends_well visitor Makefile tools/setup.sh
  chroot "$root" chown -R visitor: /home/visitor/metal_ops
  user=visitor
  ends_well visitor "$picture" make nerf
fi

echo
printf '%s\n' "${results[@]}"
[ -z "$failed" ] || exit 1
echo "all as they should be"
