#include "grapnel/train/checkpoint.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <typeinfo>

#include "grapnel/autograd/grad_mode.h"
#include "grapnel/base/place.h"
#include "grapnel/functions/factories.h"
#include "grapnel/io/pt.h"

namespace grapnel {

namespace {

// --- modules ---

/// The number and the rest of "12.exp_avg".
std::pair<int64_t, std::string> numbered(const std::string& key) {
  const size_t dot = key.find('.');
  check(dot > 0 && dot != key.npos && dot < 18 && key.find_first_not_of("0123456789") == dot,
        "the archive holds '", key, "' where a number is expected.");
  return {std::stoll(key.substr(0, dot)), key.substr(dot + 1)};
}

// Facts about a module at path "fc" are values named "__metadata__.7.fc.version": the length tells
// where the fact's own name begins, since both may have dots.
constexpr const char* metadata_part = "__metadata__";

io::Archive::Value archived(const nn::Value& value, const std::string& path,
                            const std::string& name) {
  if (value.is<bool>()) return Scalar(value.to<bool>());
  if (value.is<int64_t>()) return Scalar(value.to<int64_t>());
  if (value.is<double>()) return Scalar(value.to<double>());
  check(value.is<std::string>(), "the metadata '", name, "' of the module '", path, "' is ",
        value.describe(), "; truth values, numbers and texts can be saved.");
  return value.to<std::string>();
}

nn::Value restored(const io::Archive::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const Scalar& s = std::get<Scalar>(value);
  if (s.is_bool()) return s.to_bool();
  if (s.is_integral()) return s.to_int();
  return s.to_double();
}

void write_module(io::Archive& out, nn::Module& module) {
  const nn::StateDict state = module.state_dict();
  for (const auto& item : state) out.write(item.key(), item.value());
  io::Archive facts;
  for (const auto& [path, metadata] : state.metadata)
    for (const auto& [name, value] : metadata)
      facts.write(str(name.size(), ".", path, ".", name), archived(value, path, name));
  out.write(metadata_part, facts);
}

void read_module(const io::Archive& in, nn::Module& module) {
  nn::StateDict state;
  for (const auto& item : in.tensors()) state.set(item.key(), item.value());
  const io::Archive facts = in.part(metadata_part);
  for (const auto& [key, value] : facts.values()) {
    const auto [size, rest] = numbered(key);
    const auto length = static_cast<size_t>(size);
    check(length < rest.size() && rest[rest.size() - length - 1] == '.',
          "the archive holds metadata '", key, "', whose name is damaged.");
    const size_t begin = rest.size() - length;
    state.metadata[rest.substr(0, begin - 1)][rest.substr(begin)] = restored(value);
  }
  module.load_state_dict(state);
}

// --- optimisers ---

std::string kind_of(const optim::Optimizer& optimizer) {
  const auto& type = typeid(optimizer);
  const std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  return text ? text.get() : type.name();
}

void write_optimizer(io::Archive& out, optim::Optimizer& optimizer) {
  const optim::OptimizerStateDict dict = optimizer.state_dict();
  out.write("kind", kind_of(optimizer));
  out.write("groups", Scalar(dict.param_groups.size()));
  for (size_t g = 0; g < dict.param_groups.size(); ++g) {
    const std::string group = "group." + std::to_string(g) + ".";
    out.write(group + "params", Scalar(dict.param_groups[g].params.size()));
    for (size_t i = 0; i < dict.param_groups[g].params.size(); ++i)
      out.write(group + "param." + std::to_string(i), Scalar(dict.param_groups[g].params[i]));
    for (const auto& [name, value] : dict.param_groups[g].options)
      out.write(group + "option." + name, value);
  }
  for (const auto& [number, state] : dict.state)
    for (const auto& [name, entry] : state) {
      const std::string key = "state." + std::to_string(number) + "." + name;
      if (const Tensor* t = std::get_if<Tensor>(&entry)) out.write(key, *t);
      else out.write(key, std::get<Scalar>(entry));
    }
}

void read_optimizer(const io::Archive& in, optim::Optimizer& optimizer) {
  const std::string saved = in.text("kind"), mine = kind_of(optimizer);
  check(saved == mine, "the checkpoint holds the state of ", saved, ", this optimiser is ", mine,
        ".");
  optim::OptimizerStateDict dict;
  const int64_t groups = in.number("groups").to_int();
  check(groups == static_cast<int64_t>(optimizer.param_groups().size()),
        "the checkpoint's optimiser has ", groups, " groups of parameters, this one has ",
        optimizer.param_groups().size(), ".");
  for (int64_t g = 0; g < groups; ++g) {
    const io::Archive part = in.part("group." + std::to_string(g)), options = part.part("option");
    optim::OptimizerStateDict::Group group;
    for (const auto& item : options.values())
      group.options[item.first] = options.number(item.first);
    const int64_t params = part.number("params").to_int(),
                  expected = static_cast<int64_t>(
                      optimizer.param_groups()[static_cast<size_t>(g)].params().size());
    check(params == expected, "group ", g, " of the checkpoint's optimiser has ", params,
          " parameters, this one has ", expected, ".");
    for (int64_t i = 0; i < params; ++i)
      group.params.push_back(part.number("param." + std::to_string(i)).to_int());
    dict.param_groups.push_back(std::move(group));
  }
  const io::Archive state = in.part("state");
  for (const auto& item : state.tensors()) {
    const auto [number, name] = numbered(item.key());
    dict.state[number].insert_or_assign(name, item.value());
  }
  for (const auto& item : state.values()) {
    const auto [number, name] = numbered(item.first);
    dict.state[number].insert_or_assign(name, state.number(item.first));
  }
  optimizer.load_state_dict(dict);
}

// --- tensors ---

// A tensor that is not there yet, such as an average before the first step, is saved as nothing.
void write_tensor(io::Archive& out, const Tensor& tensor) {
  if (tensor.defined()) out.write("value", tensor);
}
void read_tensor(const io::Archive& in, Tensor& tensor) {
  const Tensor saved = in.is_empty() ? Tensor() : in.tensor("value");
  if (!tensor.defined() || !saved.defined()) {
    tensor = saved;
    return;
  }
  check(saved.shape() == tensor.shape() && saved.dtype() == tensor.dtype(), "the saved tensor is ",
        saved.dtype(), saved.shape(), ", this one is ", tensor.dtype(), tensor.shape(), ".");
  NoGradGuard no_grad;
  tensor.detach().copy_(saved);
}

}  // namespace

Checkpoint& Checkpoint::add_part(const std::string& name, Save save, Load load) {
  check(!name.empty() && name.find('.') == name.npos, "Checkpoint: '", name,
        "' cannot name a part: it is empty or has a dot.");
  for (const Part& p : parts_)
    check(p.name != name, "Checkpoint: there is a part '", name, "' already.");
  parts_.push_back({name, std::move(save), std::move(load)});
  return *this;
}

Checkpoint& Checkpoint::add(const std::string& name, nn::Module& module) {
  return add_part(
      name, [&module](io::Archive& out) { write_module(out, module); },
      [&module](const io::Archive& in) { read_module(in, module); });
}
Checkpoint& Checkpoint::add(const std::string& name, optim::Optimizer& optimizer) {
  return add_part(
      name, [&optimizer](io::Archive& out) { write_optimizer(out, optimizer); },
      [&optimizer](const io::Archive& in) { read_optimizer(in, optimizer); });
}
template <class S>
Checkpoint& Checkpoint::add_schedule(const std::string& name, S& schedule) {
  return add_part(
      name,
      [&schedule](io::Archive& out) {
        const typename S::State state = schedule.state_dict();
        for (const auto& [key, value] : state) out.write(key, value);
      },
      [&schedule](const io::Archive& in) {
        typename S::State state;
        for (const auto& [key, value] : in.values()) state[key] = in.number(key);
        schedule.load_state_dict(state);
      });
}
Checkpoint& Checkpoint::add(const std::string& name, optim::LRScheduler& scheduler) {
  return add_schedule(name, scheduler);
}
Checkpoint& Checkpoint::add(const std::string& name, optim::ReduceLROnPlateau& scheduler) {
  return add_schedule(name, scheduler);
}
Checkpoint& Checkpoint::add(const std::string& name, Generator generator) {
  return add_part(
      name, [generator](io::Archive& out) { out.write("state", generator.get_state()); },
      [generator](const io::Archive& in) mutable { generator.set_state(in.tensor("state")); });
}
Checkpoint& Checkpoint::add(const std::string& name, Tensor& tensor) {
  return add_part(
      name, [&tensor](io::Archive& out) { write_tensor(out, tensor); },
      [&tensor](const io::Archive& in) { read_tensor(in, tensor); });
}
Checkpoint& Checkpoint::add(const std::string& name, std::string& text) {
  return add_part(
      name, [&text](io::Archive& out) { out.write("value", text); },
      [&text](const io::Archive& in) { text = in.text("value"); });
}

io::Archive Checkpoint::archive() const {
  io::Archive out;
  for (const Part& part : parts_) {
    io::Archive own;
    part.save(own);
    out.write(part.name, own);
    // A part may be empty (an optimiser before its first step is not, but a module without
    // parameters is).
    out.write("__parts__." + part.name, Scalar(true));
  }
  return out;
}

void Checkpoint::load(const std::filesystem::path& path) {
  const io::Archive file = io::Archive::load(path);
  for (const Part& part : parts_)
    check(file.has("__parts__." + part.name), path.string(), ": holds no part '", part.name, "'.",
          file.part("__parts__").is_empty() ? "\nIt was not written by a Checkpoint." : "");
  const io::Archive before = archive().copy();
  size_t done = 0;
  try {
    for (; done < parts_.size(); ++done) parts_[done].load(file.part(parts_[done].name));
  } catch (const std::exception& e) {
    const std::string name = parts_[done].name;
    for (size_t i = 0; i < done; ++i) parts_[i].load(before.part(parts_[i].name));
    fail(path.string(), ": the part '", name, "' does not fit; nothing was changed.\n",
         base::without_places(e.what()));
  }
}

bool Checkpoint::resume(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return false;
  load(path);
  return true;
}

// --- single things ---

void write_archive(const io::Archive& archive, std::ostream& stream) {
  const std::string bytes = archive.bytes();
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  check(stream.good(), "save: the stream took not all of ", bytes.size(), " bytes.");
}
io::Archive read_archive(std::istream& stream) {
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  check(!stream.bad(), "load: the stream could not be read.");
  return io::Archive::parse(std::as_bytes(std::span(bytes)), "stream");
}

namespace {
io::Archive archive_of(nn::Module& module) {
  io::Archive out;
  write_module(out, module);
  return out;
}
io::Archive archive_of(const Tensor& tensor) {
  io::Archive out;
  out.write("value", tensor);
  return out;
}
io::Archive archive_of(optim::Optimizer& optimizer) {
  io::Archive out;
  write_optimizer(out, optimizer);
  return out;
}
void take(const io::Archive& in, nn::Module& module) { read_module(in, module); }
void take(const io::Archive& in, Tensor& tensor) { tensor = in.tensor("value"); }
void take(const io::Archive& in, optim::Optimizer& optimizer) { read_optimizer(in, optimizer); }
// Files of PyTorch's own form, which hold no optimiser of ours.
void take_file(const std::filesystem::path& path, nn::Module& module) {
  if (io::is_pt(path)) module.load_state_dict(io::load_pt(path).tensors());
  else take(io::Archive::load(path), module);
}
void take_file(const std::filesystem::path& path, Tensor& tensor) {
  if (!io::is_pt(path)) return take(io::Archive::load(path), tensor);
  const io::NamedTensors all = io::load_pt(path).tensors();
  check(all.size() == 1, path.string(), ": holds ", all.size(), " tensors, not one.");
  tensor = all.values()[0];
}
void take_file(const std::filesystem::path& path, optim::Optimizer& optimizer) {
  take(io::Archive::load(path), optimizer);
}
}  // namespace

#define GRAPNEL_DEFINE(Saved, Loaded)                                                         \
  void save(Saved value, const std::filesystem::path& path) { archive_of(value).save(path); } \
  void load(Loaded value, const std::filesystem::path& path) { take_file(path, value); }      \
  void save(Saved value, std::ostream& stream) { write_archive(archive_of(value), stream); }  \
  void load(Loaded value, std::istream& stream) { take(read_archive(stream), value); }
GRAPNEL_DEFINE(nn::Module&, nn::Module&)
GRAPNEL_DEFINE(const Tensor&, Tensor&)
GRAPNEL_DEFINE(optim::Optimizer&, optim::Optimizer&)
#undef GRAPNEL_DEFINE

}  // namespace grapnel
