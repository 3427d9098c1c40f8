// TensorFlow's profiler: the device's work, as tf.profiler and TensorBoard read it.
//
// TensorFlow wants an XSpace (tsl/profiler/protobuf/xplane.proto), serialised. Its own classes for
// that are not exported, so its six messages are written field by field.

#include <time.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "device/callback.h"
#include "device/memory.h"
#include "device/profiler.h"
#include "tensorflow/c/experimental/pluggable_profiler/pluggable_profiler.h"

namespace metal_device {
namespace {

// As many as two hours of small ops: 600 MB.
constexpr uint64_t kMostEvents = 6000000;

// A message of Protocol Buffers.
class Message {
 public:
  void Number(uint32_t field, uint64_t value) {
    Varint(field << 3);
    Varint(value);
  }
  void Bytes(uint32_t field, const std::string& bytes) {
    Varint(field << 3 | 2);
    Varint(bytes.size());
    text_ += bytes;
  }
  void Put(uint32_t field, const Message& message) { Bytes(field, message.text_); }
  const std::string& text() const { return text_; }

 private:
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

// Fields of the messages.
enum : uint32_t {
  kSpacePlanes = 1,
  kPlaneId = 1,
  kPlaneName = 2,
  kPlaneLines = 3,
  kPlaneEvents = 4,
  kPlaneStatNames = 5,
  kPlaneStats = 6,
  kLineId = 1,
  kLineName = 2,
  kLineTimestamp = 3,
  kLineEvents = 4,
  kLineDuration = 9,
  kLineDisplayName = 11,
  kEventMetadata = 1,
  kEventOffset = 2,
  kEventDuration = 3,
  kEventStats = 4,
  kStatMetadata = 1,
  kStatNumber = 4,
  kStatText = 5,
  kMapKey = 1,
  kMapValue = 2,
  kNamedId = 1,
  kNamedName = 2,
};

// A plane: lines of events, whose names and the names of their statistics have numbers.
class Plane {
 public:
  Plane(uint64_t id, const std::string& name) {
    plane_.Number(kPlaneId, id);
    plane_.Bytes(kPlaneName, name);
  }

  void Text(Message* message, uint32_t field, const char* stat, const std::string& text) {
    Message value;
    value.Number(kStatMetadata, Named(&stats_, stat));
    value.Bytes(kStatText, text);
    message->Put(field, value);
  }
  void Number(Message* message, const char* stat, uint64_t number) {
    Message value;
    value.Number(kStatMetadata, Named(&stats_, stat));
    value.Number(kStatNumber, number);
    message->Put(kEventStats, value);
  }

  uint64_t EventName(const std::string& name) { return Named(&events_, name); }
  void Line(const Message& line) { plane_.Put(kPlaneLines, line); }

  Message Finish(const std::string& hardware) {
    Text(&plane_, kPlaneStats, "device_vendor", "METAL");
    Text(&plane_, kPlaneStats, "device_type_string", hardware);
    for (const auto& [names, field] :
         {std::pair(&events_, kPlaneEvents), std::pair(&stats_, kPlaneStatNames)}) {
      for (const auto& [name, number] : *names) {
        Message value, entry;
        value.Number(kNamedId, number);
        value.Bytes(kNamedName, name);
        entry.Number(kMapKey, number);
        entry.Put(kMapValue, value);
        plane_.Put(field, entry);
      }
    }
    return std::move(plane_);
  }

 private:
  using Names = std::map<std::string, uint64_t>;
  static uint64_t Named(Names* names, const std::string& name) {
    return names->emplace(name, names->size() + 1).first->second;
  }
  Message plane_;
  Names events_, stats_;
};

std::string Sizes(const uint32_t (&sizes)[3]) {
  return std::to_string(sizes[0]) + "," + std::to_string(sizes[1]) + "," + std::to_string(sizes[2]);
}

Message ToEvent(Plane* plane, const Profile& profile, const ProfileEvent& event) {
  Message message;
  message.Number(kEventMetadata, plane->EventName(profile.strings[event.name]));
  message.Number(kEventOffset, (event.start - profile.began) * 1000);
  message.Number(kEventDuration, (event.end - event.start) * 1000);
  if (event.op != 0 && event.stream != 0) {
    plane->Text(&message, kEventStats, "tf_op",
                profile.strings[event.node] + ":" + profile.strings[event.op]);
  }
  if (event.kind == static_cast<uint32_t>(PassKind::kDispatch)) {
    uint32_t groups[3];
    for (int i = 0; i < 3; ++i) groups[i] = (event.grid[i] + event.group[i] - 1) / event.group[i];
    plane->Text(&message, kEventStats, "kernel_details",
                "grid:" + Sizes(groups) + " block:" + Sizes(event.group));
  }
  if (event.bytes != 0) plane->Number(&message, "bytes", event.bytes);
  return message;
}

// A line per stream, or per kind of the host's work.
using Lines = std::map<uint64_t, std::pair<std::string, std::vector<const ProfileEvent*>>>;

Message ToPlane(uint64_t id, const std::string& name, const Lines& lines, const Profile& profile,
                const std::string& hardware, uint64_t to_real_time) {
  Plane plane(id, name);
  for (const auto& [number, line] : lines) {
    Message message;
    message.Number(kLineId, number);
    message.Bytes(kLineName, line.first);
    message.Bytes(kLineDisplayName, line.first);
    message.Number(kLineTimestamp, profile.began + to_real_time);
    message.Number(kLineDuration, (profile.ended - profile.began) * 1000);
    for (const ProfileEvent* event : line.second) {
      message.Put(kLineEvents, ToEvent(&plane, profile, *event));
    }
    plane.Line(message);
  }
  return plane.Finish(hardware);
}

}  // namespace

std::string ToXSpace(const Profile& profile, const std::string& hardware) {
  // TensorFlow's clock is the time of day.
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t to_real_time = static_cast<uint64_t>(now.tv_sec) * 1000000000u +
                                static_cast<uint64_t>(now.tv_nsec) - Nanoseconds();
  Lines device, host;
  for (const ProfileEvent& event : profile.events) {
    if (event.start < profile.began || event.end < event.start) continue;
    const auto kind = static_cast<EventKind>(event.kind);
    if (kind == EventKind::kCommandBuffer) {
      auto& line = host[100 + event.stream];
      line.first = "Command buffers of stream " + std::to_string(event.stream);
      line.second.push_back(&event);
    } else if (event.stream != 0) {
      auto& line = device[event.stream];
      line.first = "METAL stream " + std::to_string(event.stream);
      line.second.push_back(&event);
    } else if (kind == EventKind::kWait) {
      auto& line = host[1];
      line.first = "Waits";
      line.second.push_back(&event);
    } else if (kind != EventKind::kOp) {  // TensorFlow has the ops itself
      auto& line = host[2];
      line.first = "Copies by the host";
      line.second.push_back(&event);
    }
  }
  Message space;
  space.Put(kSpacePlanes, ToPlane(1, "/device:GPU:0", device, profile, hardware, to_real_time));
  space.Put(kSpacePlanes,
            ToPlane(2, "/device:CUSTOM:METAL", host, profile, hardware, to_real_time));
  return space.text();
}

namespace {

// The data that TensorFlow takes in two calls: the size, then the bytes.
struct Collected {
  std::mutex mutex;
  bool stopped = false;
  Profile profile;
  std::string space;
};

Collected& TheCollected() {
  static auto* const collected = new Collected();
  return *collected;
}

void Start(const TP_Profiler*, TF_Status* status) {
  Guarded(nullptr, status, [&] {
    std::string why;
    if (Devices().empty()) return;  // the plugin has declined, and said why
    if (!StartProfile(Profiler::kTensorFlow, Devices()[0]->metal, kMostEvents, &why)) {
      TF_SetStatus(status, TF_FAILED_PRECONDITION,
                   ("METAL device: it cannot be profiled, as " + why).c_str());
    }
  });
}

void Stop(const TP_Profiler*, TF_Status* status) {
  Guarded(nullptr, status, [&] {
    Collected& collected = TheCollected();
    const std::lock_guard<std::mutex> lock(collected.mutex);
    collected.profile = StopProfile(Profiler::kTensorFlow);
    collected.space.clear();
    collected.stopped = true;
  });
}

void Collect(const TP_Profiler*, uint8_t* buffer, size_t* size, TF_Status* status) {
  Guarded(nullptr, status, [&] {
    Collected& collected = TheCollected();
    const std::lock_guard<std::mutex> lock(collected.mutex);
    if (collected.stopped) {
      if (!collected.profile.events.empty()) {
        collected.space = ToXSpace(collected.profile, Devices()[0]->name);
      }
      collected.profile = Profile();
      collected.stopped = false;
    }
    if (buffer == nullptr) {
      *size = collected.space.size();
      return;
    }
    memcpy(buffer, collected.space.data(), std::min(*size, collected.space.size()));
    collected.space.clear();
  });
}

void DestroyProfiler(TP_Profiler*) {}
void DestroyProfilerFns(TP_ProfilerFns*) {}

}  // namespace
}  // namespace metal_device

extern "C" __attribute__((visibility("default"))) void TF_InitProfiler(
    TF_ProfilerRegistrationParams* params, TF_Status*) {
  using namespace metal_device;
  params->profiler->struct_size = TP_PROFILER_STRUCT_SIZE;
  params->profiler->device_type = "GPU";
  params->profiler_fns->struct_size = TP_PROFILER_FNS_STRUCT_SIZE;
  params->profiler_fns->start = Start;
  params->profiler_fns->stop = Stop;
  params->profiler_fns->collect_data_xspace = Collect;
  params->destroy_profiler = DestroyProfiler;
  params->destroy_profiler_fns = DestroyProfilerFns;
}
