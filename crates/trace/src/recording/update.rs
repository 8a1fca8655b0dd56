//! A pair of graphs, with what updating an instance of the first from the second answered.

use serde::{Deserialize, Serialize, Serializer};

use crate::CuResult;

/// One recorded update.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UpdatePair {
    /// What the recording calls it.
    pub id: String,
    /// How `b` was made of `a`, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<String>,
    /// The graph that was instantiated; nodes in creation order.
    pub a: Vec<Node>,
    /// The graph that it was updated from.
    pub b: Vec<Node>,
    /// What the call answered.
    pub result: CuResult,
    /// The driver's reason, without its prefix.
    pub update: String,
    /// The node of `b` that the driver names.
    #[serde(default)]
    pub error_node: Option<ErrorNode>,
    /// The dependency of that node that the driver names.
    #[serde(default)]
    pub error_from: Option<ErrorNode>,
}

/// A node that the driver names in an update's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "ErrorNodeJson")]
pub enum ErrorNode {
    /// A node of `b`, by creation order.
    Top(usize),
    /// A node inside one of `b`'s child graphs.
    Inner,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum ErrorNodeJson {
    Top(usize),
    Word(String),
}

impl Serialize for ErrorNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = match self {
            Self::Top(index) => ErrorNodeJson::Top(*index),
            Self::Inner => ErrorNodeJson::Word("inner".to_owned()),
        };
        json.serialize(serializer)
    }
}

impl TryFrom<ErrorNodeJson> for ErrorNode {
    type Error = String;

    fn try_from(json: ErrorNodeJson) -> Result<Self, String> {
        match json {
            ErrorNodeJson::Top(index) => Ok(Self::Top(index)),
            ErrorNodeJson::Word(word) if word == "inner" => Ok(Self::Inner),
            ErrorNodeJson::Word(word) => Err(format!("unknown error node `{word}`")),
        }
    }
}

/// What a node holds. Fields that an older recording lacks have the value that the driver gives by default.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Node {
    Kernel {
        #[serde(default)]
        function: String,
        #[serde(default = "one")]
        grid: u32,
        #[serde(default = "one")]
        block: u32,
        #[serde(default)]
        shared: u32,
        #[serde(default)]
        priority: i32,
        #[serde(default)]
        cooperative: u8,
        #[serde(default = "one")]
        cluster: u32,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Memcpy {
        direction: String,
        bytes: u64,
        #[serde(default = "one")]
        rows: u32,
        #[serde(default = "one")]
        depth: u32,
        #[serde(default)]
        offset: u64,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Memset {
        #[serde(default)]
        offset: u64,
        #[serde(default)]
        value: u32,
        element: u32,
        width: u64,
        #[serde(default = "one_row")]
        height: u64,
        #[serde(default)]
        pitch: u64,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Child {
        /// Its nodes; an older recording gives only their number, as a chain of like kernels.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        graph: Vec<Node>,
        #[serde(default, skip_serializing_if = "is_zero")]
        kernels: usize,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Conditional {
        r#type: String,
        kernels: usize,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Alloc {
        #[serde(default)]
        bytes: u64,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Free {
        #[serde(flatten)]
        deps: Dependencies,
    },
    Host {
        /// Which of several functions.
        #[serde(default)]
        function: u32,
        #[serde(flatten)]
        deps: Dependencies,
    },
    Empty {
        #[serde(flatten)]
        deps: Dependencies,
    },
    EventRecord {
        /// Which of several events.
        #[serde(default)]
        event: u32,
        #[serde(flatten)]
        deps: Dependencies,
    },
    EventWait {
        /// Which of several events.
        #[serde(default)]
        event: u32,
        #[serde(flatten)]
        deps: Dependencies,
    },
}

/// The dependencies of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Dependencies {
    /// By creation order, in the order given to the driver.
    #[serde(default)]
    pub deps: Vec<usize>,
    /// The producer's port of each: 0 full, 1 programmatic, 2 launch order. Empty if all are full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u8>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn one() -> u32 {
    1
}

fn one_row() -> u64 {
    1
}

impl Node {
    /// What the node depends on, to be changed.
    pub fn dependencies_mut(&mut self) -> &mut Dependencies {
        match self {
            Self::Kernel { deps, .. }
            | Self::Memcpy { deps, .. }
            | Self::Memset { deps, .. }
            | Self::Child { deps, .. }
            | Self::Conditional { deps, .. }
            | Self::Alloc { deps, .. }
            | Self::Free { deps }
            | Self::Host { deps, .. }
            | Self::Empty { deps }
            | Self::EventRecord { deps, .. }
            | Self::EventWait { deps, .. } => deps,
        }
    }

    /// What the node depends on.
    pub fn dependencies(&self) -> &Dependencies {
        match self {
            Self::Kernel { deps, .. }
            | Self::Memcpy { deps, .. }
            | Self::Memset { deps, .. }
            | Self::Child { deps, .. }
            | Self::Conditional { deps, .. }
            | Self::Alloc { deps, .. }
            | Self::Free { deps }
            | Self::Host { deps, .. }
            | Self::Empty { deps }
            | Self::EventRecord { deps, .. }
            | Self::EventWait { deps, .. } => deps,
        }
    }
}

impl UpdatePair {
    pub(super) fn check(&self) -> Result<(), String> {
        let mut pending = vec![&self.a, &self.b];
        while let Some(graph) = pending.pop() {
            for (at, node) in graph.iter().enumerate() {
                let Dependencies { deps, ports } = node.dependencies();
                if let Some(missing) = deps.iter().find(|dep| **dep >= graph.len()) {
                    return Err(format!("node {at} depends on node {missing} of {}", graph.len()));
                }
                if !ports.is_empty() && ports.len() != deps.len() {
                    return Err(format!(
                        "node {at} has {} ports for {} dependencies",
                        ports.len(),
                        deps.len()
                    ));
                }
                if let Node::Child { graph, .. } = node {
                    pending.push(graph);
                }
            }
        }
        Ok(())
    }
}
