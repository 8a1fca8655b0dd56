//! What is fused and what is not, case by case; how long it takes.

use std::sync::Arc;

use phonograph_graph::{
    BufferId, ComputeGraph, DType, Edge, EdgeData, Expr, GraphBuilder, KernelRef, LibraryKernel,
    ReduceOp, View, check_rewrite,
};
use phonograph_plan::fusion::{FusionOptions, fuse};

fn unary() -> Arc<Expr> {
    Expr::build(|e| e.output(e.input(DType::F32).exp())).unwrap().into()
}

fn binary() -> Arc<Expr> {
    Expr::build(|e| e.output(e.input(DType::F32) + e.input(DType::F32))).unwrap().into()
}

/// Tensors of `[4, 6]` by name; a name in capitals is the user's memory.
struct Draft {
    b: GraphBuilder,
    names: Vec<(String, View)>,
}

impl Draft {
    fn new() -> Self {
        Self { b: GraphBuilder::new(), names: Vec::new() }
    }

    fn tensor(&mut self, name: &str) -> View {
        self.shaped(name, &[4, 6])
    }

    fn shaped(&mut self, name: &str, extents: &[u64]) -> View {
        if let Some((_, view)) = self.names.iter().find(|(known, _)| known == name) {
            return *view;
        }
        let bytes = extents.iter().product::<u64>() as usize * 4;
        let buffer = match name.chars().all(char::is_uppercase) {
            true => self.b.external_buffer(name, bytes),
            false => self.b.alloc_buffer(name, bytes),
        };
        let view = View::contiguous(buffer, DType::F32, extents).unwrap();
        self.names.push((name.to_owned(), view));
        view
    }

    /// `x` → `y`, or `x` and `z` → `y`.
    fn map(&mut self, node: &str, inputs: &[&str], output: &str) -> &mut Self {
        let views: Vec<View> = inputs.iter().map(|name| self.tensor(name)).collect();
        let expr = if views.len() == 1 { unary() } else { binary() };
        let output = self.tensor(output);
        self.b.add_elementwise(node, expr, &views, &[], &[output]);
        self
    }

    fn build(self) -> ComputeGraph {
        self.b.build().unwrap()
    }
}

/// The names of the nodes after fusion, each with the names of the buffers it uses, as `name(x y)`.
#[track_caller]
fn check(graph: &ComputeGraph, expected: &[&str]) {
    check_with(graph, &FusionOptions { independent_elements: 0, ..Default::default() }, expected);
}

#[track_caller]
fn check_with(graph: &ComputeGraph, options: &FusionOptions, expected: &[&str]) {
    let fused = fuse(graph, options).unwrap();
    assert_eq!(check_rewrite(graph, &fused.graph, &fused.image), []);
    let shown: Vec<String> = fused
        .graph
        .nodes()
        .iter()
        .zip(fused.graph.node_ids())
        .map(|(node, id)| {
            let operands = fused.graph.operands(id);
            let name = |buffer: BufferId| fused.graph.buffer(buffer).name.to_string();
            let buffers: Vec<String> = operands.iter().map(|(r, _)| name(r.buffer)).collect();
            format!("{}({})", node.name, buffers.join(" "))
        })
        .collect();
    assert_eq!(shown, expected, "{}", fused.report);
    let again = fuse(graph, options).unwrap();
    assert_eq!(again, fused, "the same graph, another result");
}

#[test]
fn chains_become_one_and_store_nothing_between() {
    let mut d = Draft::new();
    d.map("a", &["X"], "t").map("b", &["t"], "u").map("c", &["u", "X"], "Y");
    check(&d.build(), &["a+b+c(X Y)"]);
}

#[test]
fn what_somebody_else_reads_is_kept() {
    let mut d = Draft::new();
    d.map("a", &["X"], "T").map("b", &["T"], "Y");
    check(&d.build(), &["a+b(X T Y)"]);

    let mut d = Draft::new();
    d.map("a", &["X"], "t").map("b", &["t"], "Y");
    let t = d.tensor("t");
    let turned = t.transpose(0, 1).unwrap();
    let z = d.shaped("Z", &[6, 4]);
    d.b.add_elementwise("turn", unary(), &[turned], &[], &[z]);
    check(&d.build(), &["a+b(X t Y)", "turn(t Z)"]);
}

#[test]
fn a_buffer_that_is_written_again_is_not_kept() {
    let mut d = Draft::new();
    d.map("a", &["X"], "t").map("b", &["t"], "Y");
    d.b.add_barrier("");
    d.map("c", &["Y"], "t").map("d", &["t"], "Z");
    let graph = d.build();
    let fused = fuse(&graph, &FusionOptions::default()).unwrap();
    assert_eq!(check_rewrite(&graph, &fused.graph, &fused.image), []);
    assert!(fused.graph.nodes().iter().filter_map(|n| n.kernel()).count() <= 2);
    for id in fused.graph.node_ids() {
        let names_t = |buffer: BufferId| &*fused.graph.buffer(buffer).name == "t";
        assert!(!fused.graph.operands(id).iter().any(|(r, _)| names_t(r.buffer)));
    }
}

#[test]
fn a_kernel_goes_through_its_elements_as_its_readers_do() {
    // Transposed, with an operand that is the same for all of a row.
    let mut d = Draft::new();
    let (x, t, y) = (d.shaped("X", &[4, 1]), d.tensor("t"), d.shaped("Y", &[6, 4]));
    d.b.add_elementwise("a", unary(), &[x.broadcast_to(t.shape()).unwrap()], &[], &[t]);
    d.b.add_elementwise("turn", unary(), &[t.transpose(0, 1).unwrap()], &[], &[y]);
    check(&d.build(), &["a+turn(X Y)"]);

    // Flattened, then in other rows, then turned: a chain follows its end.
    let mut d = Draft::new();
    let (x, s, t, y) =
        (d.shaped("X", &[4, 6]), d.tensor("s"), d.shaped("t", &[24]), d.shaped("Y", &[3, 8]));
    d.b.add_elementwise("a", unary(), &[x], &[], &[s]);
    d.b.add_elementwise("flat", unary(), &[s.reshape(&[24]).unwrap()], &[], &[t]);
    let rows = t.reshape(&[8, 3]).unwrap().transpose(0, 1).unwrap();
    d.b.add_elementwise("turn", unary(), &[rows], &[], &[y]);
    check(&d.build(), &["a+flat+turn(X Y)"]);

    // Into a reduction along what were columns.
    let mut d = Draft::new();
    d.map("square", &["X"], "t");
    let (t, s) = (d.tensor("t"), d.shaped("S", &[6]));
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    d.b.add_library("sum", sum, &[t.transpose(0, 1).unwrap(), s]);
    let graph = d.build();
    let fused = fuse(&graph, &FusionOptions::default()).unwrap();
    assert_eq!(check_rewrite(&graph, &fused.graph, &fused.image), []);

    // Where it is (in rows of 6) is asked by the kernel itself; in rows of 8 that is no axis.
    let index = || Expr::build(|e| e.output(e.input(DType::F32) + e.index(1).cast(DType::F32)));
    for (extents, expected) in [([6, 4], &["a+turn(X Y)"][..]), ([3, 8], &["a(X t)", "turn(t Y)"])]
    {
        let mut d = Draft::new();
        let (x, t, y) = (d.tensor("X"), d.tensor("t"), d.shaped("Y", &extents));
        d.b.add_elementwise("a", index().unwrap().into(), &[x], &[], &[t]);
        let seen = match extents {
            [6, 4] => t.transpose(0, 1).unwrap(),
            _ => t.reshape(&extents).unwrap(),
        };
        d.b.add_elementwise("turn", unary(), &[seen], &[], &[y]);
        check(&d.build(), expected);
    }
}

#[test]
fn other_views_wait_for_all_elements() {
    // Two readers that see it otherwise: the first of them is no reason.
    let mut d = Draft::new();
    let (x, t) = (d.shaped("X", &[5, 5]), d.shaped("t", &[5, 5]));
    let (y, z) = (d.shaped("Y", &[5, 5]), d.shaped("Z", &[5, 5]));
    d.b.add_elementwise("a", unary(), &[x], &[], &[t]);
    d.b.add_elementwise("turn", unary(), &[t.transpose(0, 1).unwrap()], &[], &[y]);
    d.b.add_elementwise("keep", unary(), &[t], &[], &[z]);
    let graph = d.build();
    check(&graph, &["turn(t Y)", "a+keep(X t Z)"]);
    let report = fuse(&graph, &FusionOptions::default()).unwrap().report.to_string();
    assert!(report.contains("n1 left: its neighbour uses b1 through another view"), "{report}");

    // A part of it, in the same space.
    let mut d = Draft::new();
    d.map("a", &["X"], "t");
    let (t, y) = (d.tensor("t"), d.shaped("Y", &[2, 6]));
    d.b.add_elementwise("part", unary(), &[t.slice(0, 1, 2).unwrap()], &[], &[y]);
    check(&d.build(), &["a(X t)", "part(t Y)"]);

    // Over what the first reads, one row further.
    let mut d = Draft::new();
    let x = d.shaped("X", &[8, 6]);
    let (low, high) = (x.slice(0, 0, 4).unwrap(), x.slice(0, 1, 4).unwrap());
    let t = d.tensor("t");
    d.b.add_elementwise("a", unary(), &[low], &[], &[t]);
    d.b.add_elementwise("b", unary(), &[t], &[], &[high]);
    check(&d.build(), &["a(X t)", "b(t X)"]);
}

/// `kernel` from `x` to scratch of `from`, which a kernel over `to` repeats and adds to something.
fn repeated(d: &mut Draft, kernel: Arc<Expr>, from: &[u64], to: &[u64]) {
    let (x, t) = (d.shaped("X", from), d.shaped("t", from));
    let (z, y) = (d.shaped("Z", to), d.shaped("Y", to));
    d.b.add_elementwise("a", kernel, &[x], &[], &[t]);
    d.b.add_elementwise("add", binary(), &[z, t.broadcast_to(z.shape()).unwrap()], &[], &[y]);
}

#[test]
fn what_is_read_repeated_is_computed_anew_where_that_is_little_work() {
    let plain = || Expr::build(|e| e.output(-e.input(DType::F32))).unwrap().into();
    let long = || {
        let exps = Expr::build(|e| e.output((0..3).fold(e.input(DType::F32), |x, _| x.exp())));
        exps.unwrap().into()
    };
    let (one, two) = (&["a+add(X Z Y)"][..], &["a(X t)", "add(Z t Y)"][..]);
    type Case<'a> = (Arc<Expr>, &'a [u64], &'a [u64], &'a [&'a str]);
    let cases: [Case<'_>; 9] = [
        // Rows, columns, both, with further axes.
        (plain(), &[6], &[4, 6], one),
        (plain(), &[4, 1], &[4, 6], one),
        (plain(), &[2, 1, 3], &[5, 2, 4, 3], one),
        (unary(), &[6], &[4, 6], one),
        // 2 or 17 operations for each of so many elements, 4096 in all.
        (plain(), &[8], &[256, 8], one),
        (plain(), &[8], &[260, 8], two),
        (unary(), &[8], &[256, 8], two),
        // One for all is computed once, if not of every backend, unless it is long.
        (unary(), &[], &[1000, 1000], one),
        (long(), &[1], &[1000, 1000], two),
    ];
    for (kernel, from, to, expected) in cases {
        let mut d = Draft::new();
        repeated(&mut d, kernel, from, to);
        check(&d.build(), expected);
    }
    let mut d = Draft::new();
    repeated(&mut d, plain(), &[8], &[260, 8]);
    let report = fuse(&d.build(), &FusionOptions::default()).unwrap().report.to_string();
    let said =
        "n0 left: its result is read repeated, and computed anew it takes 4144 operations more";
    assert!(report.contains(said), "{report}");
    let never = FusionOptions { repeated_ops: 0, ..Default::default() };
    let mut d = Draft::new();
    repeated(&mut d, plain(), &[], &[4, 6]);
    check_with(&d.build(), &never, two);

    // A chain goes along, each link repeated once more; positions are those of its own axes.
    let mut d = Draft::new();
    let (s, t, r) = (d.shaped("S", &[1]), d.shaped("t", &[1]), d.shaped("r", &[6]));
    let (z, y) = (d.tensor("Z"), d.tensor("Y"));
    let place = Expr::build(|e| e.output(e.input(DType::F32) + e.index(0).cast(DType::F32)));
    d.b.add_elementwise("a", plain(), &[s], &[], &[t]);
    d.b.add_elementwise(
        "b",
        place.unwrap().into(),
        &[t.broadcast_to(r.shape()).unwrap()],
        &[],
        &[r],
    );
    d.b.add_elementwise("c", binary(), &[z, r.broadcast_to(z.shape()).unwrap()], &[], &[y]);
    check(&d.build(), &["a+b+c(S Z Y)"]);

    // A layer whose bias is scaled: after the product.
    let mut d = Draft::new();
    let (x, w, bias) = (d.shaped("X", &[4, 5]), d.shaped("W", &[5, 6]), d.shaped("B", &[6]));
    let (scaled, t, y) = (d.shaped("b", &[6]), d.tensor("t"), d.tensor("Y"));
    d.b.add_elementwise("scale", plain(), &[bias], &[], &[scaled]);
    d.b.add_library("product", LibraryKernel::MatMul, &[x, w, t]);
    let scaled = scaled.broadcast_to(t.shape()).unwrap();
    d.b.add_elementwise("add", binary(), &[t, scaled], &[], &[y]);
    check(&d.build(), &["scale+product+add(X W B Y)"]);
}

#[test]
fn what_is_read_repeated_is_stored_where_somebody_needs_it() {
    let plain = || Expr::build(|e| e.output(-e.input(DType::F32))).unwrap();
    // The user; a second reader that is over other elements, or far away.
    let mut d = Draft::new();
    let (x, t) = (d.shaped("X", &[6]), d.shaped("T", &[6]));
    let (z, y) = (d.tensor("Z"), d.tensor("Y"));
    d.b.add_elementwise("a", plain().into(), &[x], &[], &[t]);
    d.b.add_elementwise("add", binary(), &[z, t.broadcast_to(z.shape()).unwrap()], &[], &[y]);
    check(&d.build(), &["a(X T)", "add(Z T Y)"]);

    let mut d = Draft::new();
    repeated(&mut d, plain().into(), &[6], &[4, 6]);
    let (t, s) = (d.shaped("t", &[6]), d.shaped("S", &[6]));
    d.b.add_elementwise("also", plain().into(), &[t], &[], &[s]);
    check(&d.build(), &["add(Z t Y)", "a+also(X t S)"]);

    let mut d = Draft::new();
    repeated(&mut d, plain().into(), &[6], &[4, 6]);
    let rows = View::contiguous(d.b.external_buffer("ROWS", 16), DType::U32, &[4]).unwrap();
    let (t, y, g, s) = (d.shaped("t", &[6]), d.tensor("Y"), d.tensor("g"), d.tensor("S"));
    d.b.add_library("gather", LibraryKernel::Gather, &[y, rows, g]);
    d.b.add_elementwise("late", binary(), &[g, t.broadcast_to(g.shape()).unwrap()], &[], &[s]);
    check(&d.build(), &["a(X t)", "add(Z t Y)", "gather(Y ROWS g)", "late(g t S)"]);

    // Two readers that become one kernel are one reader.
    let mut d = Draft::new();
    repeated(&mut d, plain().into(), &[6], &[4, 6]);
    let (t, y, s) = (d.shaped("t", &[6]), d.tensor("Y"), d.tensor("S"));
    d.b.add_elementwise("late", binary(), &[y, t.broadcast_to(y.shape()).unwrap()], &[], &[s]);
    check(&d.build(), &["a+add+late(X Z Y S)"]);

    // It stays with what it could be one with instead: a reduction, and what others read as well.
    let mut d = Draft::new();
    let (s, m) = (d.shaped("s", &[4]), d.shaped("m", &[4]));
    let (x, y) = (d.tensor("X"), d.tensor("Y"));
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    d.b.add_library("sum", sum, &[x, s]);
    d.b.add_elementwise("mean", plain().into(), &[s], &[], &[m]);
    let mean = m.unsqueeze(1).unwrap().broadcast_to(x.shape()).unwrap();
    d.b.add_elementwise("centre", binary(), &[x, mean], &[], &[y]);
    check(&d.build(), &["sum+mean(X m)", "centre(X m Y)"]);

    // What it reads is written over by its reader, which must not be before all have read it.
    let mut d = Draft::new();
    let (all, t) = (d.shaped("Z", &[4, 6]), d.shaped("t", &[1, 6]));
    let first = all.slice(0, 0, 1).unwrap();
    d.b.add_elementwise("a", plain().into(), &[first], &[], &[t]);
    d.b.add_elementwise(
        "over",
        binary(),
        &[all, t.broadcast_to(all.shape()).unwrap()],
        &[],
        &[all],
    );
    check(&d.build(), &["a(Z t)", "over(Z t Z)"]);
}

#[test]
fn no_path_leaves_a_group_and_comes_back() {
    // a → gather → c and a → c: c cannot be with a.
    let mut d = Draft::new();
    d.map("a", &["X"], "t");
    let (t, u) = (d.tensor("t"), d.tensor("u"));
    let rows = View::contiguous(d.b.external_buffer("ROWS", 16), DType::U32, &[4]).unwrap();
    d.b.add_library("gather", LibraryKernel::Gather, &[t, rows, u]);
    d.map("c", &["t", "u"], "Y");
    check(&d.build(), &["a(X t)", "gather(t ROWS u)", "c(t u Y)"]);

    // The same through an edge of no data.
    let mut d = Draft::new();
    d.map("a", &["X"], "t");
    let between = d.b.add_kernel("other", 1, 1, 0).finish();
    d.map("c", &["t"], "Y");
    let graph = {
        let mut b = d.b;
        b.dep(phonograph_graph::NodeId(0), between).dep(between, phonograph_graph::NodeId(2));
        b.build().unwrap()
    };
    check(&graph, &["a(X t)", "other()", "c(t Y)"]);
}

#[test]
fn late_operands_are_waited_for() {
    // b is early, c needs it and something late: found from the end.
    let mut d = Draft::new();
    d.map("b", &["X"], "t");
    let (x, u) = (d.tensor("X"), d.tensor("u"));
    let rows = View::contiguous(d.b.external_buffer("ROWS", 16), DType::U32, &[4]).unwrap();
    d.b.add_library("gather", LibraryKernel::Gather, &[x, rows, u]);
    d.b.add_library("again", LibraryKernel::Gather, &[u, rows, d.names[0].1]);
    let graph = d.build();
    assert_eq!(fuse(&graph, &FusionOptions::default()).unwrap().graph, graph);

    let mut d = Draft::new();
    d.map("b", &["X"], "t");
    let (x, u, v) = (d.tensor("X"), d.tensor("u"), d.tensor("v"));
    let rows = View::contiguous(d.b.external_buffer("ROWS", 16), DType::U32, &[4]).unwrap();
    d.b.add_library("gather", LibraryKernel::Gather, &[x, rows, u]);
    d.b.add_library("again", LibraryKernel::Gather, &[u, rows, v]);
    d.map("c", &["t", "v"], "Y");
    check(&d.build(), &["gather(X ROWS u)", "again(u ROWS v)", "b+c(X v Y)"]);
}

#[test]
fn in_place_updates_go_along() {
    let mut d = Draft::new();
    d.map("m", &["M", "G"], "M").map("v", &["V", "G"], "V").map("p", &["M", "V"], "P");
    check(&d.build(), &["m+v+p(M G V M V P)"]);
}

#[test]
fn independent_kernels_only_where_small() {
    let mut d = Draft::new();
    d.map("a", &["X"], "A").map("b", &["Y"], "B").map("c", &["Z"], "C");
    let graph = d.build();
    check(&graph, &["a(X A)", "b(Y B)", "c(Z C)"]);
    let small = FusionOptions { independent_elements: 24, ..Default::default() };
    check_with(&graph, &small, &["a+b+c(X Y Z A B C)"]);
    let smaller = FusionOptions { independent_elements: 23, ..small };
    check_with(&graph, &smaller, &["a(X A)", "b(Y B)", "c(Z C)"]);
}

#[test]
fn limits_stop_a_group() {
    let mut d = Draft::new();
    d.map("a", &["X", "Y"], "t").map("b", &["t", "Z"], "u").map("c", &["u", "W"], "V");
    let graph = d.build();
    let few = FusionOptions { max_operands: 4, independent_elements: 0, ..Default::default() };
    let fused = fuse(&graph, &few).unwrap();
    assert_eq!(fused.graph.node_count(), 2);
    let operands = |id| fused.graph.operands(id).len();
    assert!(fused.graph.node_ids().all(|id| operands(id) <= 4), "{}", fused.report);
    let short = FusionOptions { max_ops: 5, independent_elements: 0, ..Default::default() };
    let fused = fuse(&graph, &short).unwrap();
    assert_eq!(fused.graph.node_count(), 3);
    assert!(fused.report.to_string().contains("more than 5 operations"), "{}", fused.report);
}

#[test]
fn marks_and_weak_edges_keep_kernels_apart() {
    let chain = |change: &dyn Fn(&mut GraphBuilder)| {
        let mut d = Draft::new();
        d.map("a", &["X"], "t").map("b", &["t"], "Y");
        change(&mut d.b);
        d.build()
    };
    let [a, b] = [0, 1].map(phonograph_graph::NodeId);
    let apart = ["a(X t)", "b(t Y)"];
    check(&chain(&|_| {}), &["a+b(X Y)"]);
    let marked = chain(&|builder| {
        builder.set_fusible(b, false);
    });
    check(&marked, &apart);
    let weak = Edge { from: a, to: b, data: EdgeData::PROGRAMMATIC };
    let weak = chain(&|builder| {
        builder.add_edge(weak);
    });
    check(&weak, &apart);
}

#[test]
fn reductions_and_products_take_in_what_is_around_them() {
    let mut d = Draft::new();
    d.map("square", &["X"], "t");
    let (t, s, y) = (d.tensor("t"), d.shaped("s", &[4]), d.shaped("Y", &[4]));
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    d.b.add_library("sum", sum, &[t, s]);
    d.b.add_elementwise("root", unary(), &[s], &[], &[y]);
    let graph = d.build();
    check(&graph, &["square+sum+root(X Y)"]);
    let fused = fuse(&graph, &FusionOptions::default()).unwrap().graph;
    let KernelRef::Fused(kernel) = &fused.nodes()[0].kernel().unwrap().kernel else { panic!() };
    assert!(kernel.before.is_some() && kernel.after.is_some());
    let apart = FusionOptions { library: false, ..Default::default() };
    check_with(&graph, &apart, &["square(X t)", "sum(t s)", "root(s Y)"]);

    // Across rows: what is computed stays apart, what is done to the result does not.
    let mut d = Draft::new();
    d.map("square", &["X"], "t");
    let (t, s, y) = (d.tensor("t"), d.shaped("s", &[6]), d.shaped("Y", &[6]));
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 0 };
    d.b.add_library("sum", sum, &[t, s]);
    d.b.add_elementwise("root", unary(), &[s], &[], &[y]);
    check(&d.build(), &["square(X t)", "sum+root(t Y)"]);

    // Softmax: the sum needs all of the exponentials, which are read again.
    let mut d = Draft::new();
    d.map("exp", &["X"], "t");
    let (t, s, y) = (d.tensor("t"), d.shaped("s", &[4, 1]), d.tensor("Y"));
    let sum = LibraryKernel::Reduce { op: ReduceOp::Sum, axis: 1 };
    d.b.add_library("sum", sum, &[t, s.reshape(&[4]).unwrap()]);
    d.b.add_elementwise("share", binary(), &[t, s.broadcast_to(t.shape()).unwrap()], &[], &[y]);
    check(&d.build(), &["exp+sum(X t s)", "share(t s Y)"]);

    // A linear layer with its activation, and the residual that it is added to in place.
    let mut d = Draft::new();
    let (x, w, bias) = (d.shaped("X", &[4, 5]), d.shaped("W", &[5, 6]), d.shaped("B", &[6]));
    let (t, u, y) = (d.tensor("t"), d.tensor("u"), d.tensor("Y"));
    d.b.add_library("product", LibraryKernel::MatMul, &[x, w, t]);
    let bias = bias.broadcast_to(t.shape()).unwrap();
    d.b.add_elementwise("bias", binary(), &[t, bias], &[], &[u]);
    d.b.add_elementwise("residual", binary(), &[u, y], &[], &[y]);
    check(&d.build(), &["product+bias+residual(X W B Y Y)"]);
}

#[test]
fn graphs_inside_are_fused_too() {
    let mut outer = GraphBuilder::new();
    let [x, y] = ["x", "y"].map(|name| outer.external_buffer(name, 96));
    let mut inner = GraphBuilder::new();
    let [x, y] = [x, y].map(|buffer| inner.outer_buffer(&outer, buffer));
    let t = inner.alloc_buffer("t", 96);
    let [x, y, t] = [x, y, t].map(|b| View::contiguous(b, DType::F32, &[24]).unwrap());
    inner.add_elementwise("a", unary(), &[x], &[], &[t]);
    inner.add_elementwise("b", unary(), &[t], &[], &[y]);
    outer.add_child("child", inner.build().unwrap());
    let graph = outer.build().unwrap();
    let fused = fuse(&graph, &FusionOptions::default()).unwrap();
    assert_eq!(check_rewrite(&graph, &fused.graph, &fused.image), []);
    assert_eq!(fused.graph.nodes()[0].kind.inner_graphs()[0].node_count(), 1);
}

/// A million kernels in chains, and in layers that nothing can be merged across. Asked for, because it takes seconds:
/// `cargo test --release -p phonograph-plan --test fusion -- --ignored --nocapture`.
#[test]
#[ignore = "takes seconds; run with --release -- --ignored --nocapture"]
fn a_million_nodes() {
    const NODES: usize = 1_000_000;
    for (what, chains) in [("one chain", 1), ("a thousand chains", 1000), ("pairs", NODES / 2)] {
        let mut b = GraphBuilder::new();
        let view = |buffer| View::contiguous(buffer, DType::F32, &[1 << 20]).unwrap();
        for _ in 0..chains {
            let mut last = view(b.external_buffer("", 4 << 20));
            for _ in 0..NODES / chains {
                let next = view(b.alloc_buffer("", 4 << 20));
                b.add_elementwise("", unary(), &[last], &[], &[next]);
                last = next;
            }
        }
        let graph = b.build().unwrap();
        let start = std::time::Instant::now();
        let fused = fuse(&graph, &FusionOptions::default()).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        println!("{what}: {seconds:.2} s, {} nodes left", fused.graph.node_count());
    }
}
