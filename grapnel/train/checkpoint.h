/// Checkpoints: everything a run needs to go on as if it had never stopped, in one file that is
/// always whole.
///
///   Checkpoint state;
///   state.add("model", *net).add("optimizer", opt).add("schedule", schedule);
///   state.add("random", default_generator()).add("step", step);
///   state.resume("last.safetensors");                    // false when there is no such file yet
///   for (; step < 1000; ++step) { ...; if (step % 100 == 0) state.save("last.safetensors"); }
///
/// The file is safetensors, so Python reads the weights:
/// `safetensors.torch.load_file("last.safetensors")["model.fc.weight"]`. Saving is atomic (Note
/// [Atomic files] in io/file.h), and loading is all or nothing: if a part does not fit, none is
/// changed.
#pragma once

#include <concepts>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "grapnel/functions/generator.h"
#include "grapnel/io/archive.h"
#include "grapnel/nn/module_holder.h"
#include "grapnel/optim/lr_scheduler.h"

namespace grapnel {

/// Anything that writes itself to an archive and reads itself from one, such as the state of hooks.
template <class T>
concept Archivable = requires(T& value, io::Archive& out, const io::Archive& in) {
  value.save(out);
  value.load(in);
};

/// Names parts of a program; saves and loads them together. The parts must outlive it, except
/// generators, which are handles.
class Checkpoint {
 public:
  Checkpoint& add(const std::string& name, nn::Module& module);
  template <class M>
  Checkpoint& add(const std::string& name, nn::ModuleHolder<M>& holder) {
    return add(name, static_cast<nn::Module&>(*holder));
  }
  Checkpoint& add(const std::string& name, optim::Optimizer& optimizer);
  Checkpoint& add(const std::string& name, optim::LRScheduler& scheduler);
  Checkpoint& add(const std::string& name, optim::ReduceLROnPlateau& scheduler);
  Checkpoint& add(const std::string& name, Generator generator);
  Checkpoint& add(const std::string& name, Tensor& tensor);
  Checkpoint& add(const std::string& name, std::string& text);
  template <class T>
    requires(std::integral<T> || std::floating_point<T>)
  Checkpoint& add(const std::string& name, T& number) {
    return add_part(
        name, [&number](io::Archive& out) { out.write("value", Scalar(number)); },
        [&number](const io::Archive& in) { number = in.number("value").to<T>(); });
  }
  template <Archivable T>
  Checkpoint& add(const std::string& name, T& part) {
    return add_part(
        name, [&part](io::Archive& out) { part.save(out); },
        [&part](const io::Archive& in) { part.load(in); });
  }

  void save(const std::filesystem::path& path) const { archive().save(path); }
  void load(const std::filesystem::path& path);
  /// Loads if the file exists; otherwise does nothing and returns false.
  bool resume(const std::filesystem::path& path);

  /// All parts as they are now. Tensors are shared with them.
  io::Archive archive() const;

 private:
  using Save = std::function<void(io::Archive&)>;
  using Load = std::function<void(const io::Archive&)>;
  /// One thing that is saved.
  struct Part {
    std::string name;
    Save save;
    Load load;
  };
  Checkpoint& add_part(const std::string& name, Save save, Load load);
  template <class S>
  Checkpoint& add_schedule(const std::string& name, S& schedule);

  std::vector<Part> parts_;
};

/// One module, optimiser or tensor in a file of its own, as LibTorch's torch::save and torch::load.
void save(nn::Module& module, const std::filesystem::path& path);
/// Reads what `save` wrote; modules and tensors also from a file of LibTorch's torch::save, or of
/// PyTorch's torch.save (io/pt.h).
void load(nn::Module& module, const std::filesystem::path& path);
void save(const Tensor& tensor, const std::filesystem::path& path);
void load(Tensor& tensor, const std::filesystem::path& path);
void save(optim::Optimizer& optimizer, const std::filesystem::path& path);
void load(optim::Optimizer& optimizer, const std::filesystem::path& path);
// The same bytes in a stream. Reading takes all that is left of it.
void save(nn::Module& module, std::ostream& stream);
void load(nn::Module& module, std::istream& stream);
void save(const Tensor& tensor, std::ostream& stream);
void load(Tensor& tensor, std::istream& stream);
void save(optim::Optimizer& optimizer, std::ostream& stream);
void load(optim::Optimizer& optimizer, std::istream& stream);
/// The bytes of an archive into a stream.
void write_archive(const io::Archive& archive, std::ostream& stream);
/// An archive from all that is left of a stream.
io::Archive read_archive(std::istream& stream);

}  // namespace grapnel
