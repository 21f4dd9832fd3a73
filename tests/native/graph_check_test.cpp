// Which graphs may run: those of the exporter's kind, and none that reads other
// files, runs other operators, or takes memory that the bundle's size does not
// justify.
#include "bundle/graph_check.h"

#include <chrono>
#include <functional>

#include "bundle/graph_operators.h"
#include "check.h"
#include "graph_writer.h"

namespace {

using pilotfish::GraphWeight;
using pilotfish::TensorEntry;
using proto::Graph;
using Strings = std::vector<std::string>;

const TensorEntry kMatrix{"matrix", TensorEntry::Type::kU8, {36864}, 0, 36864};
const TensorEntry kNorm{"norm", TensorEntry::Type::kF32, {64}, 40960, 256};
const std::vector<GraphWeight> kWeights{{"matrix", &kMatrix, "target.bin"}, {"norm", &kNorm, "target.bin"}};
const std::string kMatrixPlace = proto::external("matrix", 2, {36864}, "target.bin", "0", "36864");

std::string embedding(const std::string& output) {
  return proto::node("Embedding", {"input_ids", "matrix"}, {output},
                     {proto::attribute("num_rows", 64), proto::attribute("num_columns", 64)}, "pilotfish");
}

std::string linear(const std::string& input, const std::string& output, int64_t num_columns = 64) {
  return proto::node("Linear", {input, "matrix", "", "norm", ""}, {output},
                     {proto::attribute("in_features", 64), proto::attribute("out_features", num_columns)}, "pilotfish");
}

// ids -> rows of the matrix "x", then the nodes that a test adds.
Graph graph(const Strings& nodes = {}, const Strings& initializers = {}) {
  Graph made{.nodes = {embedding("x")},
             .initializers = {kMatrixPlace, proto::external("norm", 1, {64}, "target.bin", "40960", "256")},
             .inputs = {proto::port("input_ids", {{-1}}, 6)},
             .outputs = {proto::port("x", {{-1}, {64}})}};
  made.nodes.insert(made.nodes.end(), nodes.begin(), nodes.end());
  made.initializers.insert(made.initializers.end(), initializers.begin(), initializers.end());
  return made;
}

void check(const std::string& file) { pilotfish::check_graph("b/target.onnx", file, kWeights); }

// At once, and with an error that names the file and says `part`.
void refused(const std::string& file, const std::string& part) {
  const auto start = std::chrono::steady_clock::now();
  CHECK_ERROR(PF_BUNDLE_CORRUPT, part, check(file));
  CHECK_ERROR(PF_BUNDLE_CORRUPT, "b/target.onnx: ", check(file));
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
}
void refused(const Graph& made, const std::string& part) { refused(made.file(), part); }

void test_what_the_exporter_writes() {
  Graph made = graph(
      {proto::node("SimplifiedLayerNormalization", {"x", "norm"}, {"normed"}),
       proto::node("Gather", {"normed", "output_rows"}, {"kept"}, {proto::attribute("axis", 0)}),
       linear("kept", "logits"),
       proto::node("PagedAttention", {"x", "input_ids", "block_table", "key_cache.0"}, {"attended"}, {}, "pilotfish")});
  made.inputs.push_back(proto::port("output_rows", {{-1}}, 6));
  made.inputs.push_back(proto::port("block_table", {{-1}, {-1}}, 6));
  made.inputs.push_back(proto::port("key_cache.0", {{-1}, {-1}, {2}, {16}}, 10));
  made.inputs.push_back(proto::port("hidden_rows", {{-1}}, 6));
  made.initializers.push_back(proto::number(1, 0) + proto::number(2, 6) + proto::bytes(8, "hidden_rows") +
                              proto::bytes(9, ""));
  made.more_graph = proto::bytes(13, proto::port("kept", {})) + proto::bytes(16, proto::bytes(1, "note"));
  check(made.file());
}

void test_row_wise_nodes() {
  using proto::attribute;
  using proto::integers;
  using proto::node;
  check(graph({node("Reshape", {"x", "heads"}, {"a"}),
               node("Transpose", {"a"}, {"b"},
                    {proto::bytes(1, "perm") + proto::bytes(8, {0, 2, 1}) + proto::number(20, 7)}),
               node("Reshape", {"b", "flat"}, {"c"}), node("Add", {"x", "c"}, {"d"}),
               node("Split", {"d"}, {"left", "right"}, {attribute("axis", -1), attribute("num_outputs", 2)}),
               node("Concat", {"left", "right"}, {"e"}, {attribute("axis", 1)}),
               node("ReduceMean", {"e", "last"}, {"f"}, {attribute("keepdims", 0)}),
               node("Unsqueeze", {"f", "last"}, {"g"}), node("Expand", {"g", "wide"}, {"h"}),
               node("Mul", {"h", "one"}, {"i"}), node("Shape", {"i"}, {"j"}), node("Squeeze", {"g", "last"}, {"k"}),
               linear("i", "l")},
              {integers("heads", {0, 4, -1}), integers("flat", {-1, 64}), integers("last", {-1}),
               integers("wide", {1, 64}), proto::scalar("one")})
            .file());
}

void test_rows_of_our_own() {
  using proto::attribute;
  using proto::node;
  const auto own = [](const char* type, const Strings& inputs, const Strings& attributes = {}) {
    return node(type, inputs, {"y"}, attributes, "pilotfish");
  };
  for (const auto& made : {own("NormActivation", {"x", "norm"}), own("GatherRows", {"x", "input_ids"}),
                           own("Join", {"x", "x", "x"}, {attribute("axis", 1)}),
                           own("RowsPart", {"x"}, {attribute("part", 1), attribute("num_parts", 2)})}) {
    check(graph({made, linear("x", "l")}).file());
  }
  refused(graph({own("GatherRows", {"input_ids", "input_ids"})}), "picks rows of no matrix");
  refused(graph({own("GatherRows", {"x", "x"})}), "picks rows of no matrix, or by no list");
  refused(graph({own("RowsPart", {"x"}, {attribute("num_parts", 0)})}), "needs num_parts of at least 1");
  refused(graph({own("Join", {"x", "input_ids"}, {attribute("axis", 1)})}), "joins values of different rank");
  Strings nodes;
  for (int i = 0; i < 9; ++i) {  // as many rows as the list has numbers,
                                 // whatever attributes the node has
    nodes.push_back(node("GatherRows", {"x", "many"}, {"y" + std::to_string(i)}, {attribute("axis", 1)}, "pilotfish"));
  }
  refused(graph(nodes, {proto::integers("many", std::vector<int64_t>(8000))}), "makes constants of more than");
}

void test_nodes_that_the_provider_runs() {
  using proto::node;
  const auto first = [](const Strings& nodes, const Strings& initializers = {}) {
    return pilotfish::first_provider_node(graph(nodes, initializers).file());
  };
  CHECK_EQ(first({linear("x", "l")}), std::string());
  const std::string reshape = node("Reshape", {"x", "shape"}, {"a"});
  CHECK_EQ(first({reshape, linear("x", "l")}, {proto::integers("shape", {0, 64})}), std::string());
  CHECK_EQ(first({reshape, node("Add", {"a", "x"}, {"b"}), node("Mul", {"b", "x"}, {"c"})},
                 {proto::integers("shape", {0, 64})}),
           std::string("Add (Add.7)"));
}

void test_files_elsewhere() {
  const auto with = [](const std::string& initializer) {
    Graph made = graph();
    made.initializers[0] = initializer;
    return made;
  };
  for (const char* const place :
       {"/etc/passwd", "../target.bin", "./target.bin", "other.bin", "", "target.bin/", "*/_ORT_MEM_ADDR_/*"}) {
    refused(with(proto::external("matrix", 2, {36864}, place, "0", "36864")), "the manifest has it in target.bin");
  }
  refused(with(proto::external("matrix", 2, {36864}, "target.bin", "4096", "36864")), "36864 bytes at 0");
  refused(with(proto::external("matrix", 2, {36864}, "target.bin", "0", "36865")), "36864 bytes at 0");
  refused(with(proto::external("matrix", 2, {36863}, "target.bin", "0", "36864")), "36864 bytes at 0");
  refused(with(proto::external("matrix", 3, {36864}, "target.bin", "0", "36864")), "36864 bytes at 0");
  refused(with(proto::external("other", 2, {36864}, "target.bin", "0", "36864")), "the manifest's tensors");
  refused(with(kMatrixPlace + proto::bytes(13, proto::bytes(1, "checksum") + proto::bytes(2, "x"))), "another key");
  refused(with(kMatrixPlace + proto::bytes(13, proto::bytes(1, "location") + proto::bytes(2, "/etc/passwd"))),
          "another key");
  refused(with(kMatrixPlace + proto::bytes(9, "abcd")), "two places");
  refused(with(proto::number(1, 4) + proto::number(2, 2) + proto::bytes(8, "matrix") + proto::bytes(9, "abcd")),
          "has matrix itself");
}

void test_other_operators() {
  for (const char* const type : {"Loop", "If", "Scan", "ConstantOfShape", "Range", "Tile", "Resize", "Pad",
                                 "RandomNormal", "MatMul", "Einsum", "NonZero"}) {
    refused(graph({proto::node(type, {"x"}, {"y"})}), std::string("node ") + type + " \"" + type + ".7\" is of");
  }
  refused(graph({proto::node("Add", {"x", "x"}, {"y"}, {}, "com.microsoft")}), "pilotfish.Linear");
  refused(graph({proto::node("Linear", {"x", "matrix"}, {"y"})}), "domain \"\"; allowed are pilotfish.Embedding");
  const std::string graph_attribute =
      proto::bytes(1, "body") + proto::bytes(6, graph().message()) + proto::number(20, 5);
  refused(graph({proto::node("Add", {"x", "x"}, {"y"}, {graph_attribute})}), "the field 6; allowed are name, f, i");
  refused(graph({proto::node("Cast", {"x"}, {"y"}, {proto::attribute("to", 8)})}), "elements of type 8");
  Graph with_function = graph();
  with_function.more_model = proto::bytes(25, proto::bytes(1, "Add"));
  refused(with_function, "the field 25");
  Graph with_training = graph();
  with_training.more_model = proto::bytes(20, "");
  refused(with_training, "the field 20");
  Graph with_sparse = graph();
  with_sparse.more_graph = proto::bytes(15, "");
  refused(with_sparse, "the field 15");
}

using Integers = std::vector<int64_t>;

// |x| of 64 columns, with other attributes where a test gives some.
std::string row_steps(const Integers& steps = {1, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},
                      const Integers& outputs = {0}, const Integers& widths = {64}, const Strings& results = {"y"}) {
  return proto::node("RowSteps", {"x"}, results,
                     {proto::attribute("row_inputs", 1), proto::attribute("widths", widths),
                      proto::attribute("steps", steps), proto::attribute("outputs", outputs)},
                     "pilotfish");
}

void test_row_steps() {
  check(graph({row_steps(), linear("y", "z")}).file());
  refused(graph({proto::node("RowSteps", {"x"}, {"y"}, {}, "pilotfish")}), "needs widths, a list of integers");
  refused(graph({row_steps({1, 1, 1, 64, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}),
          "step 0: it reads element 64 of a value of 64");
  refused(graph({row_steps({1, 1, 1, 64, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}), "a source is 3");
  refused(graph({row_steps({1, 2})}), "2 integers for its steps");
  refused(graph({row_steps({99, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})}), "its kind is 99");
  refused(graph({row_steps({1, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {1})}), "an output is 1");
  refused(graph({row_steps({1, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}, {64, 64})}),
          "another number of inputs or outputs");
  refused(graph({row_steps({1, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}, {64}, {"y", "z"})}),
          "another number of inputs or outputs");
  // Programs are no constants: as many as a deep model has, and no more than the reader holds.
  Strings programs;
  for (int i = 0; i < 450; ++i) {
    programs.push_back(
        row_steps({1, 1, 1, 64, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, {0}, {64}, {"many" + std::to_string(i)}));
  }
  check(graph(programs).file());
  refused(graph({row_steps(Integers((1 << 18) + 1, 1))}), "nodes list more than 262144 integers");
  // A sum of 2^22 products takes time, though it makes one number.
  refused(graph({row_steps({21, 1, 1, 1 << 22, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0})}), "for each row");
  Graph caches =
      graph({proto::node("RowSteps", {"cache"}, {"y"},
                         {proto::attribute("row_inputs", 1), proto::attribute("widths", Integers{1}),
                          proto::attribute("steps", Integers{1, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}),
                          proto::attribute("outputs", Integers{0})},
                         "pilotfish")});
  caches.inputs.push_back(proto::port("cache", {{-1}, {-1}, {2}, {16}}));
  refused(caches, "which only pilotfish's operators may");
}

Strings doubling(int count) {
  Strings nodes;
  for (int i = 0; i < count; ++i) {
    const std::string from = i == 0 ? "x" : "y" + std::to_string(i - 1);
    nodes.push_back(proto::node("Concat", {from, from}, {"y" + std::to_string(i)}, {proto::attribute("axis", i % 2)}));
  }
  return nodes;
}

void test_memory() {
  using proto::attribute;
  using proto::integers;
  using proto::node;
  check(graph(doubling(3)).file());
  refused(graph(doubling(40)), "elements for each row, the largest in the Concat \"Concat.7\"");
  refused(graph({node("Expand", {"one", "shape"}, {"y"})}, {proto::scalar("one"), integers("shape", {1 << 30})}),
          "constants of more than");
  refused(graph({node("Expand", {"x", "shape"}, {"y"})}, {integers("shape", {1 << 20, 1, 64})}), "for each row");
  refused(graph({node("Transpose", {"input_ids"}, {"t"}), node("Unsqueeze", {"t", "last"}, {"u"}),
                 node("Add", {"u", "t"}, {"y"})},
                {integers("last", {-1})}),
          "square of a pass's rows");
  refused(graph({node("Shape", {"x"}, {"s"}), node("Expand", {"x", "s"}, {"y"})}), "needs its shape as a constant");
  refused(graph({node("Reshape", {"x", "input_ids"}, {"y"})}), "needs its shape as a constant");
  refused(graph({linear("x", "y", 1 << 20)}), "is larger than its weight of 36864 bytes");
  refused(graph({node("Gather", {"x", "wide"}, {"y"})}, {integers("wide", std::vector<int64_t>(9000))}),
          "constants of more than 65536 bytes");
  Strings many;
  for (int i = 0; i < 17; ++i) many.push_back(linear("x", "y" + std::to_string(i)));
  refused(graph(many), "reads matrix, as do 16 nodes");
  Graph wide = graph();
  wide.inputs.push_back(proto::port("features", {{-1}, {int64_t{1} << 40}}));
  refused(wide, "more than 262144 columns");
  Graph caches = graph({node("Add", {"x", "cache"}, {"y"})});
  caches.inputs.push_back(proto::port("cache", {{-1}, {-1}, {2}, {16}}));
  refused(caches, "which only pilotfish's operators may");
  refused(graph({node("PagedAttention", {"x"}, {"y"}, {}, "pilotfish")}), "for each cache");
}

void test_inline_tensors() {
  const std::string huge = proto::number(1, uint64_t{1} << 40) + proto::number(2, 1) + proto::bytes(8, "huge");
  refused(graph({}, {huge}), "constants of more than 65536 bytes");
  refused(graph({}, {proto::number(1, 4) + proto::number(2, 1) + proto::bytes(8, "t") + proto::bytes(9, "abcd")}),
          "another number of elements");
  refused(graph({}, {proto::number(1, uint64_t(-4)) + proto::number(2, 1) + proto::bytes(8, "t")}), "dimension -4");
  refused(graph({}, {proto::number(2, 8) + proto::bytes(8, "t")}), "elements of type 8");
  refused(graph({}, {proto::scalar("input_ids")}), "a default for input_ids that is not empty");
}

void test_bounds() {
  Graph old = graph();
  old.opset = 7;
  refused(old, "version 7; allowed are 18");
  Graph late = graph();
  late.ir_version = 99;
  refused(late, "ir_version 99");
  Graph foreign = graph();
  foreign.more_model = proto::bytes(8, proto::bytes(1, "com.microsoft") + proto::number(2, 1));
  refused(foreign, "domain \"com.microsoft\"");
  refused(graph({proto::node("Add", {"x", "x"}, {std::string(300, 'n')})}), "a name of more than 256 bytes");
  refused(graph(Strings(9000, proto::node("Add", {"x", "x"}, {"y"}))), "more than 8192 nodes");
  refused(graph({proto::node("Add", {"x", "later"}, {"y"})}), "reads later, which nothing before it makes");
  refused(graph({proto::node("Add", {"x", "x"}, {"x"})}), "makes x twice");
  refused(graph({proto::node("Neg", {"x\x1b[2J"}, {"y"})}), "reads x?[2J");
}

void test_damaged_bytes() {
  const std::string file = graph({linear("x", "y")}).file();
  for (size_t length = 0; length < file.size(); ++length) {
    try {
      check(file.substr(0, length));
    } catch (const pilotfish::Error& error) {
      CHECK_EQ(error.status(), pf_status{PF_BUNDLE_CORRUPT});
    }
  }
  refused(std::string(), "has no graph");
  refused(file + proto::varint(8) + std::string(9, '\xff') + '\x7f', "more than 64 bits");
  refused(file + std::string(1, '\x3b'),
          "a type that graphs have not");  // a group
  refused(file + proto::bytes(7, ""), "graph twice");
  refused(file + proto::number(7, 1), "graph of another type");
  refused(file + std::string("\x12\xff\xff\xff\xff\x0f", 6), "cut short");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep = proto::bytes(6, deep.substr(0, 1000));
  refused(graph({proto::node("Add", {"x", "x"}, {"y"}, {deep})}), "the field 6");
  // Bytes that ONNX Runtime takes for a file of its own format.
  refused(proto::bytes(2, std::string("\0\0ORTM", 6)) + "\x7f", "");
}

}  // namespace

int main() {
  test_what_the_exporter_writes();
  test_row_wise_nodes();
  test_rows_of_our_own();
  test_nodes_that_the_provider_runs();
  test_files_elsewhere();
  test_other_operators();
  test_row_steps();
  test_memory();
  test_inline_tensors();
  test_bounds();
  test_damaged_bytes();
  return check::result();
}
