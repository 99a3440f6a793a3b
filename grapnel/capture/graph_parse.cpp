/// Reading graphs back from their text.
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <utility>

#include "grapnel/capture/graph.h"
#include "grapnel/ops/defs/copy.h"
#include "grapnel/ops/defs/index.h"
#include "grapnel/ops/op_table.h"

namespace grapnel {

using capture::kNone;

/// Recursive descent over the text of one graph.
class GraphParser {
 public:
  explicit GraphParser(std::string_view text) : rest_(text) {}

  Graph parse() {
    expect("graph");
    expect("(");
    while (!accept(")")) {
      if (!g_.inputs_.empty()) expect(",");
      const std::string name = word();
      if (name == "none") {
        g_.inputs_.push_back(kNone);
        continue;
      }
      expect(":");
      if (accept("number")) g_.inputs_.push_back(define(name, {.dtype = kFloat64, .lifted = true}));
      else g_.inputs_.push_back(define(name, type()));
    }
    expect("{");
    while (!accept("}")) statement();
    g_.order_values();
    try {
      g_.verify();
    } catch (const InternalError& e) {
      fail("Graph::parse: the text is no graph: ", e.what());
    }
    return std::move(g_);
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail("Graph::parse: line ", line_, ": ", what, ".");
  }

  void skip() {
    while (!rest_.empty()) {
      if (rest_[0] == '\n') ++line_;
      if (rest_[0] == '#') rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      else if (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t') rest_.remove_prefix(1);
      else break;
    }
  }
  bool accept(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) wrong(str("expected \"", token, "\" before \"", rest_.substr(0, 20), "\""));
  }
  std::string word() {
    skip();
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) || rest_[n] == '_'))
      ++n;
    if (n == 0) wrong(str("expected a name before \"", rest_.substr(0, 20), "\""));
    std::string result(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return result;
  }
  int64_t integer() {
    skip();
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc())
      wrong(str("expected a whole number before \"", rest_.substr(0, 20), "\""));
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  Shape list() {
    expect("[");
    Shape s;
    while (!accept("]")) {
      if (!s.empty()) expect(",");
      if (s.size() == kMaxRank) wrong(str("a shape has at most ", kMaxRank, " sizes"));
      s.push_back(integer());
    }
    return s;
  }
  DType dtype() {
    const std::string text = word();
    for (int i = 0; i < kDTypeCount; ++i)
      if (name(static_cast<DType>(i)) == text) return static_cast<DType>(i);
    wrong(str("there is no type \"", text, "\""));
  }
  Graph::Value type() {
    Graph::Value v;
    v.dtype = dtype();
    v.sizes = list();
    checked_numel(v.sizes, "Graph::parse");
    // On the same line: the next one may begin with a value of that name.
    if (rest_.starts_with(" on ")) {
      rest_.remove_prefix(4);
      v.device = device();
    }
    return v;
  }
  Device device() {
    std::string text = word();
    if (accept(":")) text += ":" + word();
    try {
      return Device(text);
    } catch (const Error&) {
      wrong(str("there is no device \"", text, "\""));
    }
  }
  /// Whether the library itself ever writes the result of this op into its first operand.
  static bool works_in_place(const Op& op) {
    if (op.family == Family::pointwise || op.random) return true;
    for (const Op* other : {&op_of<Copy>, &op_of<Fill>, &op_of<Scatter>, &op_of<ScatterAdd>,
                            &op_of<IndexPut>, &op_of<IndexAdd>})
      if (&op == other) return true;
    return false;
  }

  Graph::Id define(const std::string& name, Graph::Value value) {
    const auto id = static_cast<Graph::Id>(g_.values_.size());
    if (!names_.emplace(name, id).second) wrong(str("\"", name, "\" is assigned twice"));
    g_.values_.push_back(std::move(value));
    return id;
  }
  Graph::Id known(const std::string& name) {
    const auto found = names_.find(name);
    if (found == names_.end()) wrong(str("\"", name, "\" is not assigned"));
    return found->second;
  }
  Graph::Id number(const Scalar& value) {
    Graph::Value v;
    v.number = value;
    v.dtype = value.dtype();
    g_.values_.push_back(std::move(v));
    return static_cast<Graph::Id>(g_.values_.size() - 1);
  }
  bool at_number() {
    skip();
    return !rest_.empty() &&
           (std::isdigit(static_cast<unsigned char>(rest_[0])) || rest_[0] == '-' ||
            rest_.starts_with("inf") || rest_.starts_with("nan"));
  }
  Scalar plain_number() {
    skip();
    size_t n = 1;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) ||
                                rest_[n] == '.' || rest_[n] == '+' || rest_[n] == '-'))
      ++n;
    const std::string text(rest_.substr(0, n));
    rest_.remove_prefix(n);
    if (text.find_first_of(".eni") == std::string::npos) {
      int64_t value = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
        wrong(str("\"", text, "\" is no number"));
      return value;
    }
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end) wrong(str("\"", text, "\" is no number"));
    return value;
  }

  /// One text per attribute, by name; handed to the op's own list of attributes.
  class Attrs final : public AttrReader {
   public:
    Attrs(GraphParser& parser, std::map<std::string, std::string_view> texts)
        : parser_(parser), texts_(std::move(texts)) {}
    void on(std::string_view name, bool& value) override {
      with(name, [&] { value = parser_.accept("true") || (parser_.expect("false"), false); });
    }
    void on(std::string_view name, int64_t& value) override {
      with(name, [&] { value = parser_.integer(); });
    }
    void on(std::string_view name, double& value) override {
      with(name, [&] { value = parser_.plain_number().to_double(); });
    }
    void on(std::string_view name, DType& value) override {
      with(name, [&] { value = parser_.dtype(); });
    }
    void on(std::string_view name, Shape& value) override {
      with(name, [&] { value = parser_.list(); });
    }

   private:
    template <class Read>
    void with(std::string_view name, Read read) {
      const auto found = texts_.find(std::string(name));
      if (found == texts_.end()) parser_.wrong(str("attribute \"", name, "\" is missing"));
      const std::string_view after = std::exchange(parser_.rest_, found->second);
      read();
      parser_.rest_ = after;
    }
    GraphParser& parser_;
    std::map<std::string, std::string_view> texts_;
  };

  void statement() {
    if (accept("return")) {
      while (!at_end()) {
        if (!g_.outputs_.empty()) expect(",");
        const std::string name = word();
        g_.outputs_.push_back(name == "none" ? kNone : known(name));
      }
      return;
    }
    std::vector<std::string> results;
    std::string name = word();
    skip();
    if (!rest_.starts_with("(")) {
      results.push_back(name);
      while (accept(",")) results.push_back(word());
      expect("=");
      name = word();
    }
    if (name == "constant" || name == "empty") {
      expect(":");
      if (results.size() != 1) wrong(str("\"", name, "\" is one value"));
      Graph::Value v = type();
      if (name == "empty") v.fresh = true;
      else v.missing = true;
      define(results[0], std::move(v));
      return;
    }
    Graph::Instruction i;
    i.op = find_op(name);
    if (!i.op && name.ends_with("_")) {
      i.inplace = true;
      i.op = find_op(std::string_view(name).substr(0, name.size() - 1));
    }
    if (i.op && i.inplace && !(works_in_place(*i.op) && results.empty()))
      wrong(str("\"", name, "\" does not work in place"));
    if (!i.op) wrong(str("there is no op \"", name, "\" that can be read back"));
    const std::vector<Graph::Id> inputs = arguments(i);
    std::vector<Graph::Id> outputs;
    if (i.inplace && !inputs.empty()) outputs.push_back(inputs[0]);
    if (!results.empty()) expect(":");
    for (size_t k = 0; k < results.size(); ++k) {
      if (k > 0) expect(",");
      if (results[k] == "none") {
        if (!i.op->effect) wrong(str("\"", name, "\" always has a result"));
        expect("none");
        outputs.push_back(kNone);
      } else {
        outputs.push_back(define(results[k], type()));
      }
    }
    g_.calls_.append(i, inputs, outputs);
  }
  bool at_end() {
    skip();
    return rest_.empty() || rest_[0] == '}';
  }

  /// The operands; the attributes are kept.
  std::vector<Graph::Id> arguments(Graph::Instruction& i) {
    expect("(");
    std::vector<Graph::Id> inputs;
    std::map<std::string, std::string_view> attrs;
    bool first = true;
    while (!accept(")")) {
      if (!first) expect(",");
      first = false;
      if (at_number()) {
        inputs.push_back(number(plain_number()));
        continue;
      }
      const std::string name = word();
      if (accept("=")) {
        skip();
        attrs[name] = rest_;
        if (rest_.starts_with("[")) list();
        else if (at_number()) plain_number();
        else word();
      } else if (name == "true" || name == "false") {
        inputs.push_back(number(name == "true"));
      } else {
        inputs.push_back(name == "none" ? kNone : known(name));
      }
    }
    if (i.op->attrs_size == 0) return inputs;
    std::vector<std::max_align_t> read(capture::Calls::attr_blocks(*i.op));
    Attrs reader(*this, std::move(attrs));
    i.op->read_attrs(read.data(), reader);
    i.attrs = g_.calls_.add_attrs(*i.op, read.data());
    return inputs;
  }

  std::string_view rest_;
  int line_ = 1;
  Graph g_;
  std::map<std::string, Graph::Id> names_;
};

Graph Graph::parse(std::string_view text) { return GraphParser(text).parse(); }

}  // namespace grapnel
