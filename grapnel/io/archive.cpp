#include "grapnel/io/archive.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "grapnel/io/json_depth.h"

namespace grapnel::io {

namespace {

using nlohmann::json;

/// Counts changes of the format that older readers would misread.
constexpr int64_t format_version = 1;
constexpr const char* metadata_key = "grapnel";

/// JSON has no infinities and no NaN; they are written as {"f64": "inf"}.
json to_json(const Archive::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const Scalar& s = std::get<Scalar>(value);
  if (s.is_bool()) return s.to_bool();
  if (s.is_integral()) return s.to_int();
  const double x = s.to_double();
  if (std::isfinite(x)) return x;
  return {{"f64", std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf"}};
}

Archive::Value from_json(const json& value, const std::string& name, const std::string& source) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return Scalar(value.get<bool>());
  if (value.is_number_integer()) return Scalar(value.get<int64_t>());
  if (value.is_number_float()) return Scalar(value.get<double>());
  if (value.is_object() && value.size() == 1 && value.contains("f64") && value["f64"].is_string()) {
    const auto text = value["f64"].get<std::string>();
    if (text == "nan") return Scalar(std::nan(""));
    if (text == "inf" || text == "-inf") return Scalar(text == "inf" ? HUGE_VAL : -HUGE_VAL);
  }
  fail(source, ": the value '", name, "' is neither a number nor text.");
}

}  // namespace

void Archive::write(const std::string& name, const Tensor& tensor) { tensors_.set(name, tensor); }
void Archive::write(const std::string& name, Value value) {
  values_.insert_or_assign(name, std::move(value));
}
bool Archive::has(const std::string& name) const {
  return tensors_.contains(name) || values_.contains(name);
}

void Archive::write(const std::string& name, const Archive& part) {
  for (const auto& item : part.tensors_) write(name + "." + item.key(), item.value());
  for (const auto& [key, value] : part.values_) write(name + "." + key, value);
}

Tensor Archive::tensor(const std::string& name) const {
  const Tensor* found = tensors_.find(name);
  check(found != nullptr, "the archive holds no tensor '", name, "'.");
  return *found;
}

Scalar Archive::number(const std::string& name) const {
  const auto it = values_.find(name);
  check(it != values_.end() && std::holds_alternative<Scalar>(it->second),
        "the archive holds no number '", name, "'.");
  return std::get<Scalar>(it->second);
}

std::string Archive::text(const std::string& name) const {
  const auto it = values_.find(name);
  check(it != values_.end() && std::holds_alternative<std::string>(it->second),
        "the archive holds no text '", name, "'.");
  return std::get<std::string>(it->second);
}

Archive Archive::part(const std::string& name) const {
  const std::string prefix = name + ".";
  Archive out;
  for (const auto& item : tensors_)
    if (item.key().starts_with(prefix)) out.write(item.key().substr(prefix.size()), item.value());
  for (const auto& [key, value] : values_)
    if (key.starts_with(prefix)) out.write(key.substr(prefix.size()), value);
  return out;
}

Archive Archive::copy() const {
  Archive out;
  for (const auto& item : tensors_) out.write(item.key(), item->detach().clone());
  out.values_ = values_;
  return out;
}

std::string Archive::json_of_values() const {
  json values = json::object();
  for (const auto& [name, value] : values_) values[name] = to_json(value);
  return json{{"version", format_version}, {"values", values}}.dump();
}

namespace {
template <class Fn>
auto with_texts_checked(const std::string& source, Fn&& fn) {
  try {
    return fn();
  } catch (const json::type_error&) {
    fail(source, ": a name or a text is not valid UTF-8.");
  }
}
}  // namespace

void Archive::save(const std::filesystem::path& path) const {
  with_texts_checked(path.string(),
                     [&] { save_safetensors(path, tensors_, {{metadata_key, json_of_values()}}); });
}
std::string Archive::bytes() const {
  return with_texts_checked("archive", [&] {
    return format_safetensors(tensors_, {{metadata_key, json_of_values()}}, "archive");
  });
}

Archive Archive::load(const std::filesystem::path& path) {
  return from(load_safetensors(path), path.string());
}
Archive Archive::parse(std::span<const std::byte> bytes, const std::string& source) {
  return from(parse_safetensors(bytes, source), source);
}
Archive Archive::from(Safetensors file, const std::string& source) {
  Archive out;
  out.tensors_ = std::move(file.tensors);
  const auto it = file.metadata.find(metadata_key);
  if (it == file.metadata.end()) return out;
  check_json_depth(it->second, source);
  const json root = json::parse(it->second, nullptr, /*allow_exceptions=*/false);
  check(root.is_object() && root.contains("version") && root["version"].is_number_integer(), source,
        ": the values beside the tensors are damaged.");
  const auto version = root["version"].get<int64_t>();
  check(version == format_version, source, ": is a checkpoint of version ", version,
        "; this library reads version ", format_version,
        ".\nUse the version of Grapnel that wrote it.");
  check(root.contains("values") && root["values"].is_object(), source,
        ": the values beside the tensors are damaged.");
  for (const auto& [name, value] : root["values"].items())
    out.write(name, from_json(value, name, source));
  return out;
}

}  // namespace grapnel::io
