"""Training: one compiled step, the occupancy grid's upkeep, and the contents of a checkpoint."""

from __future__ import annotations

import dataclasses
import math
import time
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops import OccupancyGrid
from metal_ops.ops.ray_march import RaySamples
from metal_ops.programs import checkpoint
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.records import history_from, number_from, take_state
from metal_ops.programs.workers import Workers

from .cameras import RayCaster
from .config import ModelConfig, TrainConfig, to_json
from .evaluate import Renderer
from .fused import Rendering
from .hull import fit_space, level_hulls
from .launches import Sizes
from .model import RadianceField
from .packed import PackedField, can_pack, has_own_memory
from .packed_exchange import PackedExchange
from .packed_training import PackedOccupancy, PackedTraining
from .pixels import background_of, training_pixels
from .rays import march, middles, select
from .scenes import Scene

_LOOK_EVERYWHERE = 64  # steps during which every cell is looked at
# A step of the marcher through a cell of this opacity is not worth a look.
_EMPTY_OPACITY = 0.03
# Once there are surfaces, samples behind them are dropped before the expensive part of a step.
_PRUNE_FROM = 256
_HIDDEN = 1e-3
_LEAST_RAYS, _MOST_RAYS = 64, 1 << 16
# Packed steps are looked at this often, to find how many rays and slots fit; at first more often.
_LOOK_EVERY = 16
# Slots for marched samples, as multiples of those that are kept.
_LEAST_SLOTS, _MOST_SLOTS = 1, 16


class StepReport(NamedTuple):
    """The figures of a training step.

    Attributes:
      loss: Mean squared error of the batch's colours.
      rays: Rays in the batch.
      samples: Packed samples that the networks saw.
    """

    loss: float
    rays: int
    samples: int


class Trainer:
    """A radiance field, its optimizer and everything else that changes while it learns.

    Two trainers with the same scene, configuration and number of steps hold the same bits, also when one of them
    was saved and loaded in between; that needs `steps` as the budget, as the learning rate follows the
    progress through the budget and seconds differ from run to run.

    Args:
      scene: The scene to learn.
      model: The network.
      config: How to learn.
      workers: With whom: each draws its share of as many rays as all together, and all hold the same bits.

    Raises:
      ProgramError: If options and scene contradict each other.

    Example:
      >>> from metal_ops.nerf.config import ModelConfig, TrainConfig
      >>> from metal_ops.nerf.scenes.procedural import procedural_scene
      >>> scene = procedural_scene(size=16, train_views=4, test_views=1, supersample=1)
      >>> trainer = Trainer(scene, ModelConfig(n_levels=4), TrainConfig(seconds=None, steps=2))
      >>> trainer.train_step().loss > 0
      True
    """

    def __init__(
        self,
        scene: Scene,
        model: ModelConfig,
        config: TrainConfig,
        workers: Workers | None = None,
    ) -> None:
        if config.background == "random" and not scene.has_alpha:
            raise ProgramError(
                "--background random needs images with alpha, and those of this scene have none; use white or black."
            )
        self.scene = scene = fit_space(scene)
        self.config, self.workers = config, workers
        # The clock of this worker's steps; `seconds` is the chief's, which all follow.
        self._clock = 0.0
        if model.finest_resolution is None:
            finest = int(np.clip(2.5 * scene.pixels_across, 2 * model.base_resolution, 4096))
            model = dataclasses.replace(model, finest_resolution=finest)
        self.model_config = model
        self.step = 0
        self.seconds = 0.0
        self.rays_seen = 0
        self.samples_seen = 0
        self.history: list[dict[str, float]] = []
        self.march_step = scene.space.diagonal / config.samples_per_diagonal
        self.field = RadianceField(model, config.seed)
        resolution = config.occupancy_resolution
        hull = None
        if scene.has_alpha:
            hull = level_hulls(scene.train, scene.space, resolution)
        self.occupancy = OccupancyGrid(
            scene.space.aabb,
            resolution,
            scene.space.n_levels,
            threshold=_EMPTY_OPACITY / self.march_step,
            allowed=hull,
        )
        is_hash = model.encoding == "hash"
        self.learning_rate: float = config.learning_rate or (1e-2 if is_hash else 3e-3)
        self.target_samples: int = config.target_samples or (6144 if is_hash else 4096)
        self._variables = list(self.field.trainable_variables)
        # beta2 is instant-ngp's, too.
        self.optimizer = self.field.ops.Adam(
            learning_rate=self.learning_rate, beta_1=0.9, beta_2=0.99, epsilon=config.epsilon
        )
        self.optimizer.build(self._variables)
        # A guess that the first steps correct: most rays hold a dozen samples.
        self.n_rays = max(self.target_samples // 16, _LEAST_RAYS)
        self.packed = self._packed_field()
        if self.packed is None:
            self._train = self._make_step(hull)
        else:
            self.n_slots = 4 * self.target_samples
            self._seen = (float("nan"), 0)
            self._train = self._make_packed_step(self.packed, hull)
            self._packed_look = PackedOccupancy(
                self.packed, self.occupancy, 4 * self.target_samples
            )
        self._look = tf.function(
            self._look_at_cells,
            input_signature=[tf.TensorSpec([2], tf.int32), tf.TensorSpec([], tf.bool)],
            autograph=False,
        )

    def _packed_field(self) -> PackedField | None:
        """The field of steps without waits; None where they are not asked for, or cannot be had."""
        config, cameras = self.config, self.scene.train.cameras
        possible = (
            can_pack(self.field, self.scene.space)
            and config.loss == "mse"
            and config.distortion == 0
            and cameras.is_pinhole
        )
        wanted = config.packed
        if wanted is None:
            wanted = has_own_memory(self.occupancy.bits.device)
            if self.workers is not None:  # of several machines one may have no GPU
                wanted = self.workers.all(wanted)
        if not (wanted and possible):
            if config.packed:
                raise ProgramError(
                    "packed steps need a hash-encoded field with exponential density and even numbers of features, the "
                    "fused backend, networks 16, 32, 64 or 128 wide, the squared error alone, and a bounded scene by "
                    "pinholes; leave 'packed' out."
                )
            return None
        return PackedField(
            self.field, tf.float16 if self.model_config.mixed_precision else tf.float32
        )

    def _look_at_cells(self, seed: tf.Tensor, everywhere: tf.Tensor) -> None:
        space = self.scene.space
        density = self.field.density if self.packed is None else self.packed.density

        def thickness(points: tf.Tensor) -> tf.Tensor:
            return density(space.to_unit(points)) * space.thickening(points)

        def seen(most: int) -> Callable[[tf.Tensor], tf.Tensor]:
            # All look at the same points, each at a part of them, so that all grids are one.
            workers = self.workers
            return thickness if workers is None else lambda p: workers.shared(thickness, p, most)

        update, n_looks = self.occupancy.update, 4 * self.target_samples
        n_cells = self.occupancy.density.shape.num_elements()
        tf.cond(
            everywhere,
            lambda: update(seen(n_cells), seed, every_cell=True),
            lambda: update(seen(n_looks), seed, n_looks=n_looks),
        )

    def _make_packed_step(self, packed: PackedField, hull: np.ndarray | None) -> PackedTraining:
        cameras = self.scene.train.cameras
        return PackedTraining(
            packed,
            self.occupancy,
            self.scene.space,
            self.march_step,
            _HIDDEN,
            *training_pixels(self.scene, hull),
            tf.constant(cameras.poses[:, :3], tf.float32),
            tf.constant(cameras.intrinsics, tf.float32),
            (cameras.width, cameras.height),
            background_of(self.scene, self.config),
            self._apply,
            self._packed_exchange(packed),
        )

    def _packed_exchange(self, packed: PackedField) -> PackedExchange | None:
        if self.workers is None:
            return None
        return PackedExchange(self.workers, packed, self.occupancy.bits.device)

    def _apply(
        self,
        gradients: list[tf.Tensor],
        variables: list[tf.Variable],
        number: tf.Tensor,
        rate: tf.Tensor,
    ) -> None:
        """The optimizer's update, with its step's number from the host: its own is read back from where ops run."""
        for gradient, variable in zip(gradients, variables, strict=True):
            self.optimizer.fused_update(gradient, variable, rate, 0.0, step=number)

    def _make_step(self, hull: np.ndarray | None) -> Any:
        views, config = self.scene.train, self.config
        count, height, width = views.images.shape[:3]
        pixels, useful = training_pixels(self.scene, hull)
        n_useful = count * height * width if useful is None else int(useful.shape[0])
        caster = RayCaster(views.cameras)
        fixed = background_of(self.scene, config)

        workers = self.workers
        whose = self.field.table if self.model_config.encoding == "hash" else None
        table = next((i for i, v in enumerate(self._variables) if v is whose), None)

        # `own` is a worker's message to the others.
        signature = [tf.TensorSpec([], tf.int32)] * 2 + [tf.TensorSpec([2])] * (workers is not None)

        @tf.function(input_signature=signature, autograph=False)
        def train(n_rays: tf.Tensor, step: tf.Tensor, own: tf.Tensor | None = None):
            def uniform(shape: Any, stream: int, **kwargs: Any) -> tf.Tensor:
                def drawn(shape: Any) -> tf.Tensor:
                    return tf.random.stateless_uniform(
                        shape, tf.stack([4 * config.seed + stream, step]), **kwargs
                    )

                if workers is None:
                    return drawn(shape)
                return workers.slice(drawn([workers.count * shape[0], *shape[1:]]))

            number = uniform([n_rays], 0, minval=0, maxval=n_useful, dtype=tf.int32)
            pixel = tf.cast(number, tf.int64) if useful is None else tf.gather(useful, number)
            rgba = tf.cast(tf.gather(pixels, pixel), tf.float32) / 255.0
            background = uniform([n_rays, 3], 1) if fixed is None else tf.constant(fixed)
            target = rgba[:, :3] * rgba[:, 3:] + (1.0 - rgba[:, 3:]) * background
            origins, directions = caster(
                pixel // (height * width), pixel % width, pixel // width % height
            )
            # The jitter's numbers follow from a ray's place in its batch: another seed for each worker.
            jitter = step if workers is None else tf.bitwise.bitwise_xor(step, workers.seed)
            loss, gradients, n_samples = self.gradients(
                origins,
                directions,
                background,
                target,
                tf.stack([4 * config.seed + 2, jitter]),
                step,
            )
            if workers is None or own is None:
                self.optimizer.apply(gradients, self._variables)
                return loss, n_samples
            gradients, numbers, cost = workers.mean(
                gradients, [loss, n_samples, own[0], own[1]], table
            )
            self.optimizer.apply(gradients, self._variables)
            share = 1 / workers.count
            return numbers * tf.constant([share, share, 1.0, 1.0]), cost

        return train

    def gradients(
        self,
        origins: tf.Tensor,
        directions: tf.Tensor,
        background: tf.Tensor,
        target: tf.Tensor,
        seed: tf.Tensor,
        step: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor], tf.Tensor]:
        """The gradients from some rays.

        Args:
          origins: float32 [R, 3], world.
          directions: float32 [R, 3], unit length.
          background: float32 [3] or [R, 3], behind each ray.
          target: float32 [R, 3], the colours to be seen.
          seed: Two integers, of the rays' jitter.
          step: Number of the step: once there are surfaces, samples behind them are left out.

        Returns:
          The loss, its gradients in the order of the field's trainable variables, and the number of samples.
        """
        space, field, ops = self.scene.space, self.field, self.field.ops
        scale = self.config.gradient_scale
        samples = march(ops, origins, directions, space, self.occupancy, self.march_step, seed=seed)
        samples = tf.cond(
            step >= _PRUNE_FROM,
            lambda: self._without_hidden(origins, directions, samples),
            lambda: samples,
        )
        points = space.along(origins, directions, samples.ray_indices, middles(samples))
        encoded = tf.gather(field.encode_directions(directions), samples.ray_indices)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._variables)
            density, features = field.geometry(points)
            rendering = ops.volume_render(
                density, field.colour(features, encoded), samples, background
            )
            loss = self._loss(rendering, target, samples)
            scaled = loss * scale if scale != 1.0 else loss
        gradients = tape.gradient(scaled, self._variables)
        if scale != 1.0:
            gradients = [gradient / scale for gradient in gradients]
        return loss, gradients, tf.size(samples.t_starts)

    def _loss(self, rendering: Rendering, target: tf.Tensor, samples: RaySamples) -> tf.Tensor:
        config, ops = self.config, self.field.ops
        errors = rendering.rgb - target
        if config.loss == "mse":
            loss = tf.reduce_mean(tf.square(errors))
        else:
            loss = tf.reduce_mean(ops.robust_loss(errors, config.robust_alpha, config.robust_scale))
        if config.distortion > 0:
            # The loss is linear in the unit of length.
            spread = tf.reduce_mean(ops.distortion_loss(rendering.weights, samples))
            loss += config.distortion / self.scene.space.diagonal * spread
        return loss

    def _without_hidden(
        self, origins: tf.Tensor, directions: tf.Tensor, samples: RaySamples
    ) -> RaySamples:
        """The samples that light still reaches: a look at the density alone is cheap, colour and gradients are not."""
        points = self.scene.space.along(origins, directions, samples.ray_indices, middles(samples))
        _, reaching = self.field.ops.render_weights(self.field.density(points), samples)
        return select(self.field.ops, samples, tf.where(reaching > _HIDDEN)[:, 0])

    @property
    def progress(self) -> float:
        """The part of the budget that is used up, in [0, 1]: of steps, seconds, or the further one."""
        parts = [0.0]
        if self.config.steps is not None:
            parts.append(self.step / max(self.config.steps, 1))
        if self.config.seconds is not None:
            parts.append(self.seconds / max(self.config.seconds, 1e-9))
        return min(max(parts), 1.0)

    @property
    def done(self) -> bool:
        """Whether the budget is used up."""
        return self.progress >= 1.0

    def scheduled_learning_rate(self) -> float:
        """Constant for 40 % of the budget, then falling exponentially."""
        late = max(self.progress - 0.4, 0.0) / 0.6
        return self.learning_rate * self.config.final_learning_rate**late

    def train_step(self) -> StepReport:
        """One step of Adam on a batch of rays, and now and then a look at the occupancy grid.

        Packed steps are reported as the last one that was looked at: they are under way when this returns.
        """
        started = time.perf_counter()
        rays = self.n_rays
        if self.packed is None:
            self.optimizer.learning_rate = self.scheduled_learning_rate()
            loss, samples = self._train_once(rays)
            report = StepReport(loss, rays, samples)
            # As space empties, rays get cheaper: keep the number of samples, not of rays.
            wanted = rays * min(max(self.target_samples / max(report.samples, 1), 0.5), 1.5)
            self.n_rays = int(min(max(wanted, _LEAST_RAYS), _MOST_RAYS))
        else:
            self._train_packed(Sizes(rays, self.n_slots, self.target_samples))
            report = StepReport(self._seen[0], rays, self._seen[1])
        self.step += 1
        every = self.config.occupancy_every
        if every and self.step % every == 0:
            self._update_occupancy()
        self.rays_seen += rays
        self.samples_seen += report.samples
        if not math.isfinite(report.loss) and (self.packed is None or self.step > 1):
            raise ProgramError(
                f"the loss of step {self.step} is {report.loss}: training diverged; lower --learning-rate."
            )
        self._clock += time.perf_counter() - started
        if self.workers is None:
            self.seconds = self._clock
        return report

    def _train_once(self, rays: int) -> tuple[float, int]:
        """The loss and number of samples of a step, of all workers' rays together: their mean."""
        workers, numbers = self.workers, (tf.constant(rays), tf.constant(self.step))
        if workers is None:
            loss, samples = self._train(*numbers)
            return float(loss), int(samples)
        loss, samples, self.seconds = workers.step(self._train, *numbers, seconds=self._clock)
        return loss, int(samples)

    def _train_packed(self, sizes: Sizes) -> None:
        """A step, and now and then a look at its needs, which waits for it.

        All workers look at once, and learn only then of the chief's seconds and whether to stop.
        """
        step, workers = self.step, self.workers
        how = sizes, self.config.seed, step, self.scheduled_learning_rate()
        looks = step < _LOOK_EVERY or (step + 1) % _LOOK_EVERY == 0
        # Nothing has been seen by who goes on from a checkpoint.
        read = looks or not math.isfinite(self._seen[0])
        if workers is not None:
            found = workers.step(
                lambda own: self._train.together(*how, own, read), seconds=self._clock, read=read
            )
            if not found:
                return
            loss, *slots, self.seconds = found
            marched, kept = np.asarray(slots[:2]), np.asarray(slots[2:])
        else:
            totals = self._train(*how)
            if not read:
                return
            loss, marched, kept = float(totals.loss), totals.marched.numpy(), totals.kept.numpy()
        self._seen = loss, int(kept[0])
        if looks:
            self._fit(sizes, marched, kept)

    def _fit(self, sizes: Sizes, marched: np.ndarray, kept: np.ndarray) -> None:
        """The number of rays that fill the slots, and of slots that hold their samples, by the needs of a step."""
        # The part of the rays with room that was looked at further.
        looked_at = sizes.rays * min(1.0, sizes.slots / max(int(marched[1]), 1))
        kept_per_ray = max(int(kept[1]), 1) / max(looked_at, 1.0)
        wanted = 0.97 * sizes.kept / kept_per_ray
        wanted = min(max(wanted, 0.5 * sizes.rays), 2.0 * sizes.rays)
        self.n_rays = int(min(max(wanted, _LEAST_RAYS), _MOST_RAYS))
        slots = 1.1 * int(marched[1]) / sizes.rays * self.n_rays / sizes.kept
        slots = min(max(slots, _LEAST_SLOTS), _MOST_SLOTS)
        self.n_slots = int(-(-slots * sizes.kept // 4096)) * 4096

    def _update_occupancy(self) -> None:
        everywhere = self.step <= _LOOK_EVERYWHERE
        if self.packed is not None and not everywhere:
            # With workers each looks at all: their variables hold the same bits, and so will the grids.
            self._packed_look(self.config.seed, self.step)
            return
        with nullcontext() if self.workers is None else self.workers.noticing():
            self._look(tf.constant([self.config.seed, self.step]), tf.constant(everywhere))

    def renderer(self, finer: int = 1) -> Renderer:
        """A renderer of the field as it is now and will be; `finer` divides the marching step."""
        space, step = self.scene.space, self.march_step / finer
        return Renderer(self.field, self.occupancy, space, step, self.packed)

    def agree(self) -> None:
        """Takes over the chief's state, who may have loaded it; all workers call it before their first step."""
        workers = self.workers
        if workers is None:
            return
        images = self.scene.train.images
        workers.agree_on("the scene", zlib.crc32(images.tobytes()) | images.size << 32)
        workers.share_state(self._state())
        names = ["step", "seconds", "n_rays", "rays_seen", "samples_seen", "history"]
        if self.packed is not None:
            names.append("n_slots")
        for name, value in workers.share({name: getattr(self, name) for name in names}).items():
            setattr(self, name, value)
        self._clock = self.seconds

    def _state(self) -> dict[str, tf.Variable]:
        named = {f"model/{v.name.split(':')[0]}": v for v in self._variables}
        named |= {f"occupancy/{v.name.split(':')[0]}": v for v in self.occupancy.variables}
        named |= {f"optimizer/{i:02d}": v for i, v in enumerate(self.optimizer.variables)}
        return named

    def save(self, path: Path, extra: dict[str, Any] | None = None) -> None:
        """Writes a checkpoint with all that `load` needs to go on bit by bit."""
        if self.workers is not None:
            self.workers.settle()  # nothing of a step that others did not come to
        if self.packed is not None:
            self.optimizer.iterations.assign(self.step)
            self.optimizer.learning_rate = self.scheduled_learning_rate()
        header = {
            "model": to_json(self.model_config),
            "train": to_json(self.config),
            "step": self.step,
            "seconds": self.seconds,
            "n_rays": self.n_rays,
            **({} if self.packed is None else {"n_slots": self.n_slots}),
            "rays_seen": self.rays_seen,
            "samples_seen": self.samples_seen,
            "history": self.history,
            **(extra or {}),
        }
        checkpoint.save(
            path, "nerf", header, {name: v.numpy() for name, v in self._state().items()}
        )

    def load(self, header: dict[str, Any], arrays: dict[str, np.ndarray], where: str) -> None:
        """Takes over a state that `save` wrote.

        Raises:
          CheckpointError: If it belongs to another model or scene.
        """
        counters = _counters(header, where)
        state = self._state()
        take_state(state, arrays, where)
        self.step, self.seconds = counters["step"], float(counters["seconds"])
        self._clock = self.seconds
        self.n_rays = counters["n_rays"]
        if self.packed is not None and "n_slots" in header:
            most = _MOST_SLOTS * self.target_samples + 4096
            self.n_slots = number_from(header, "n_slots", where, 1, most)
        self.rays_seen, self.samples_seen = counters["rays_seen"], counters["samples_seen"]
        self.history = history_from(header, where, "psnr")


def _counters(header: dict[str, Any], where: str) -> dict[str, Any]:
    limits = {
        "step": (0, (1 << 31) - 1),  # the step is an int32 on its way into random numbers
        "seconds": (0, 1e9),
        "n_rays": (_LEAST_RAYS, _MOST_RAYS),
        "rays_seen": (0, 1e18),
        "samples_seen": (0, 1e18),
    }
    return {name: number_from(header, name, where, *limit) for name, limit in limits.items()}
