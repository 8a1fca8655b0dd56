//! Pairs of graphs made at random: one, and the same with a few edits.

use phonograph_trace::CuResult;
use phonograph_trace::recording::{Dependencies, Node, UpdatePair};

use super::generate::Random;

/// The pair with this number of a seed. It holds no answer: it says that the update succeeds.
///
/// ```
/// use phonograph_cuda::record::generate::pair;
///
/// assert_eq!(pair(7, 3), pair(7, 3));
/// assert_eq!(pair(7, 3).id, "7-3");
/// ```
pub fn pair(seed: u64, number: u64) -> UpdatePair {
    let mut random = Random::of(seed, number);
    let count = 1 + random.below(8);
    let a = graph(&mut random, count, 2);
    let mut b = a.clone();
    let mut edits = Vec::new();
    for _ in 0..1 + random.below(3) {
        let drawn = EDITS[random.below(EDITS.len())];
        if apply(&mut random, drawn, &mut b) {
            edits.push(drawn.to_owned());
        }
    }
    UpdatePair {
        id: format!("{seed}-{number}"),
        edits,
        a,
        b,
        result: CuResult::SUCCESS,
        update: "SUCCESS".to_owned(),
        error_node: None,
        error_from: None,
    }
}

/// What may be done to a graph; some more often.
const EDITS: [&str; 14] = [
    "none",
    "params",
    "params",
    "params",
    "params",
    "kind",
    "kind",
    "add_node",
    "remove_last",
    "remove_edge",
    "add_edge",
    "swap_creation",
    "port",
    "reverse_deps",
];

/// A graph of so many nodes, allocations apart, which come with their free. `nesting` bounds child graphs in child graphs.
fn graph(random: &mut Random, count: usize, nesting: usize) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    while nodes.len() < count {
        let deps = dependencies(random, &nodes);
        // The driver lets no child graph allocate.
        if nesting == 2 && random.chance(4) {
            let bytes = 4096 * (1 + random.below(2) as u64);
            nodes.push(Node::Alloc { bytes, deps });
            let deps = Dependencies { deps: vec![nodes.len() - 1], ports: Vec::new() };
            nodes.push(Node::Free { deps });
            continue;
        }
        let mut node = content(random, nesting);
        *node.dependencies_mut() = deps;
        weaken(random, &nodes, &mut node, 8);
        nodes.push(node);
    }
    nodes
}

/// What a new last node of a graph depends on.
fn dependencies(random: &mut Random, nodes: &[Node]) -> Dependencies {
    let mut deps: Vec<usize> = (0..nodes.len()).filter(|_| random.chance(30)).collect();
    if deps.is_empty() && !nodes.is_empty() && random.chance(75) {
        deps.push(random.below(nodes.len()));
    }
    if random.chance(30) {
        deps.reverse();
    }
    Dependencies { deps, ports: Vec::new() }
}

/// Makes dependencies between kernels weak, so many of a hundred.
fn weaken(random: &mut Random, before: &[Node], node: &mut Node, percent: usize) {
    let is_kernel = |node: &Node| matches!(node, Node::Kernel { .. });
    if !is_kernel(node) {
        return;
    }
    let deps = node.dependencies_mut();
    let mut port = |&dep: &usize| match is_kernel(&before[dep]) && random.chance(percent) {
        true => 1 + random.below(2) as u8,
        false => 0,
    };
    let ports: Vec<u8> = deps.deps.iter().map(&mut port).collect();
    deps.ports = if ports.iter().any(|&port| port > 0) { ports } else { Vec::new() };
}

const FUNCTIONS: [&str; 4] = ["noop", "addone", "noop@module2", "addone@module2"];
const DIRECTIONS: [&str; 3] = ["htod", "dtoh", "dtod"];

/// A node of any kind but allocation and free, without dependencies.
fn content(random: &mut Random, nesting: usize) -> Node {
    let deps = Dependencies::default();
    let offset = 4096 * random.below(4) as u64;
    match random.below(100) {
        0..44 => Node::Kernel {
            function: FUNCTIONS[random.below(4)].to_owned(),
            grid: 2 << random.below(2),
            block: 32 << random.below(2),
            shared: if random.chance(10) { 1024 } else { 0 },
            priority: if random.chance(15) { -1 } else { 0 },
            cooperative: u8::from(random.chance(12)),
            cluster: 1 + u32::from(random.chance(12)),
            deps,
        },
        44..58 => Node::Memcpy {
            direction: DIRECTIONS[random.below(3)].to_owned(),
            bytes: 64 << random.below(2),
            rows: 1 + random.below(3) as u32,
            depth: 1 + random.below(2) as u32,
            offset,
            deps,
        },
        58..74 => Node::Memset {
            offset,
            value: random.below(3) as u32,
            element: 1 << random.below(3),
            width: 16 << random.below(2),
            height: 1 + random.below(3) as u64,
            pitch: 512 << random.below(2),
            deps,
        },
        74..81 => Node::Host { function: random.below(2) as u32, deps },
        81..87 => Node::Empty { deps },
        87..90 => Node::EventRecord { event: random.below(2) as u32, deps },
        90..93 => Node::EventWait { event: random.below(2) as u32, deps },
        93..95 => Node::Conditional {
            r#type: ["if", "while"][random.below(2)].to_owned(),
            kernels: 1 + random.below(2),
            deps,
        },
        _ if nesting > 0 => {
            let count = 1 + random.below(4);
            Node::Child { graph: graph(random, count, nesting - 1), kernels: 0, deps }
        }
        _ => Node::Empty { deps },
    }
}

/// Edits a graph; false if there is nothing to edit so.
fn apply(random: &mut Random, edit: &str, nodes: &mut Vec<Node>) -> bool {
    let holds_memory = |node: &Node| matches!(node, Node::Alloc { .. } | Node::Free { .. });
    let at = random.below(nodes.len());
    match edit {
        "params" => match &mut nodes[at] {
            Node::Child { graph, .. } if !graph.is_empty() => return apply(random, edit, graph),
            Node::Empty { .. } | Node::Free { .. } => return false,
            node => change(random, node),
        },
        "kind" => {
            if holds_memory(&nodes[at]) {
                return false;
            }
            let deps = nodes[at].dependencies().deps.clone();
            let mut node = content(random, 0);
            *node.dependencies_mut() = Dependencies { deps, ports: Vec::new() };
            nodes[at] = node;
            // What is no kernel can be at neither end of a weak dependency.
            for later in nodes.iter_mut() {
                let deps = later.dependencies_mut();
                if deps.deps.contains(&at) {
                    deps.ports.clear();
                }
            }
        }
        "add_node" => {
            let mut node = content(random, 0);
            *node.dependencies_mut() = dependencies(random, nodes);
            nodes.push(node);
        }
        "remove_last" => {
            if nodes.len() < 2 || nodes.last().is_some_and(holds_memory) {
                return false;
            }
            nodes.pop();
        }
        "remove_edge" => {
            let deps = nodes[at].dependencies_mut();
            if deps.deps.is_empty() {
                return false;
            }
            let place = random.below(deps.deps.len());
            deps.deps.remove(place);
            if !deps.ports.is_empty() {
                deps.ports.remove(place);
            }
        }
        "add_edge" => {
            let from = random.below(nodes.len());
            let deps = nodes[at].dependencies_mut();
            if from >= at || deps.deps.contains(&from) {
                return false;
            }
            deps.deps.push(from);
            if !deps.ports.is_empty() {
                deps.ports.push(0);
            }
        }
        "swap_creation" => {
            let next = at + 1;
            let apart = next < nodes.len() && !nodes[next].dependencies().deps.contains(&at);
            if !apart || holds_memory(&nodes[at]) || holds_memory(&nodes[next]) {
                return false;
            }
            nodes.swap(at, next);
            for node in nodes.iter_mut() {
                for dep in &mut node.dependencies_mut().deps {
                    *dep = match *dep {
                        dep if dep == at => next,
                        dep if dep == next => at,
                        dep => dep,
                    };
                }
            }
        }
        "port" => {
            let (before, rest) = nodes.split_at_mut(at);
            let old = rest[0].dependencies().ports.clone();
            weaken(random, before, &mut rest[0], 60);
            return rest[0].dependencies().ports != old;
        }
        "reverse_deps" => {
            let deps = nodes[at].dependencies_mut();
            if deps.deps.len() < 2 {
                return false;
            }
            deps.deps.reverse();
            deps.ports.reverse();
        }
        _ => {}
    }
    true
}

/// Changes one thing that a node holds.
fn change(random: &mut Random, node: &mut Node) {
    let which = random.below(6);
    match node {
        Node::Kernel { function, grid, block, shared, priority, cooperative, cluster, .. } => {
            match which {
                0 => *function = FUNCTIONS[random.below(4)].to_owned(),
                1 => *grid = 6 - *grid,
                2 => (*block, *shared) = (96 - *block, 1024 - *shared),
                3 => *priority = -1 - *priority,
                4 => *cooperative = 1 - *cooperative,
                _ => *cluster = 3 - *cluster,
            }
        }
        Node::Memcpy { direction, bytes, rows, depth, offset, .. } => match which {
            0 | 1 => *direction = DIRECTIONS[random.below(3)].to_owned(),
            2 => *bytes = 192 - *bytes,
            3 => *rows = *rows % 3 + 1,
            4 => *depth = 3 - *depth,
            _ => *offset = (*offset + 4096) % 16384,
        },
        Node::Memset { offset, value, element, width, height, pitch, .. } => match which {
            0 => *offset = (*offset + 4096) % 16384,
            1 => *value += 1,
            2 => *element = *element % 4 * 2 + u32::from(*element == 4),
            3 => *width = 48 - *width,
            4 => *height = *height % 3 + 1,
            _ => *pitch = 1536 - *pitch,
        },
        Node::Host { function, .. } => *function = 1 - *function,
        Node::EventRecord { event, .. } | Node::EventWait { event, .. } => *event = 1 - *event,
        Node::Conditional { r#type, kernels, .. } => match which % 2 {
            0 => *r#type = if r#type == "if" { "while" } else { "if" }.to_owned(),
            _ => *kernels = 3 - *kernels,
        },
        Node::Alloc { bytes, .. } => *bytes = 12288 - *bytes,
        Node::Child { .. } | Node::Free { .. } | Node::Empty { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use phonograph_capture::conformance::conformance;
    use phonograph_trace::recording::Recording;

    use super::*;

    #[test]
    fn pairs_are_well_formed_and_every_edit_occurs() {
        let pairs: Vec<UpdatePair> = (0..2000).map(|number| pair(5, number)).collect();
        let lines: Vec<String> =
            pairs.iter().map(|pair| serde_json::to_string(pair).unwrap()).collect();
        let text = lines.join("\n");
        let Ok(Recording::Updates(read)) = Recording::parse(text.as_bytes()) else {
            panic!("the pairs are a recording")
        };
        assert_eq!(read, pairs);
        let edits: BTreeSet<&str> =
            pairs.iter().flat_map(|pair| &pair.edits).map(String::as_str).collect();
        assert_eq!(edits, EDITS.into_iter().collect());
        for node in pairs.iter().flat_map(|pair| pair.a.iter().chain(&pair.b)) {
            let (deps, ports) = (&node.dependencies().deps, &node.dependencies().ports);
            assert!(ports.is_empty() || matches!(node, Node::Kernel { .. }), "{node:?}");
            assert_eq!(deps.iter().collect::<BTreeSet<_>>().len(), deps.len(), "{node:?}");
        }
        // The model finds all sorts of reasons in them.
        let refused = conformance(text.as_bytes()).unwrap();
        assert!(refused.right > 500 && refused.right < 1500, "{refused}");
    }
}
