//! The statements of a DOT file, as tables.
//!
//! In: the text. Out: its subgraphs, nodes and edges in file order, with the attributes that somebody reads here
//! and with byte offsets for messages. O(text · log names), iterative. The grammar is Graphviz's, directed graphs
//! only, without ports and without subgraphs as ends of an edge.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::token::{Fault, Lexer, Token};
use super::{MAX_DOT_EDGES, MAX_DOT_NODES};
use crate::{EdgeData, EdgeKind};

/// How deep subgraphs may nest; the driver's are siblings, one deep.
const MAX_DEPTH: usize = 64;

/// A row of [`Document::clusters`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ClusterId(pub u32);

impl ClusterId {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A row of [`Document::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Statement(pub u32);

impl Statement {
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A cluster, or the file itself (always the first).
#[derive(Debug)]
pub(super) struct Cluster<'a> {
    /// `cluster_1`; of the file itself, its name.
    pub name: Cow<'a, str>,
    pub label: Option<Cow<'a, str>>,
    /// The attribute `name`, which only this crate writes.
    pub graph_name: Option<Cow<'a, str>>,
    pub at: usize,
    pub nodes: Vec<Statement>,
    /// Indices into [`Document::edges`].
    pub edges: Vec<u32>,
}

/// A node statement.
#[derive(Debug)]
pub(super) struct NodeStatement<'a> {
    pub name: Cow<'a, str>,
    pub at: usize,
    pub cluster: ClusterId,
    pub attributes: NodeAttributes<'a>,
}

/// The attributes of a node that are read; of a repeated one, the last.
#[derive(Clone, Default, Debug)]
pub(super) struct NodeAttributes<'a> {
    pub label: Option<Cow<'a, str>>,
    pub shape: Option<Cow<'a, str>>,
    /// The node's name; only this crate writes it.
    pub node_name: Option<Cow<'a, str>>,
    /// The function of a kernel or host node; only this crate writes it.
    pub function: Option<Cow<'a, str>>,
    /// The stream; only this crate writes it.
    pub stream: Option<u32>,
}

/// An edge, resolved.
#[derive(Debug)]
pub(super) struct EdgeStatement {
    pub from: Statement,
    pub to: Statement,
    pub data: EdgeData,
    pub at: usize,
}

/// What a file says.
#[derive(Debug)]
pub(super) struct Document<'a> {
    pub clusters: Vec<Cluster<'a>>,
    pub nodes: Vec<NodeStatement<'a>>,
    pub edges: Vec<EdgeStatement>,
}

/// Reads the statements of `text`.
pub(super) fn parse(text: &str) -> Result<Document<'_>, Fault> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        ahead: None,
        clusters: Vec::new(),
        nodes: Vec::new(),
        names: BTreeMap::new(),
        symbols: Vec::new(),
        edges: Vec::new(),
    };
    parser.file()?;
    parser.resolve()
}

/// A node name, met in a node statement or an edge.
struct Symbol<'a> {
    name: Cow<'a, str>,
    node: Option<Statement>,
}

struct PendingEdge {
    from: (u32, usize),
    to: (u32, usize),
    data: EdgeData,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    ahead: Option<(Token<'a>, usize)>,
    clusters: Vec<Cluster<'a>>,
    nodes: Vec<NodeStatement<'a>>,
    names: BTreeMap<Cow<'a, str>, u32>,
    symbols: Vec<Symbol<'a>>,
    edges: Vec<PendingEdge>,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Result<(Token<'a>, usize), Fault> {
        match self.ahead.take() {
            Some(token) => Ok(token),
            None => self.lexer.next(),
        }
    }

    fn peek(&mut self) -> Result<&Token<'a>, Fault> {
        if self.ahead.is_none() {
            self.ahead = Some(self.lexer.next()?);
        }
        match &self.ahead {
            Some((token, _)) => Ok(token),
            None => Ok(&Token::End),
        }
    }

    fn skip_if(&mut self, token: &Token) -> Result<bool, Fault> {
        let found = self.peek()? == token;
        if found {
            self.ahead = None;
        }
        Ok(found)
    }

    fn expect(&mut self, token: &Token, whither: &str) -> Result<(), Fault> {
        let (found, at) = self.next()?;
        if found == *token {
            return Ok(());
        }
        let (wanted, found) = (token.describe(), found.describe());
        Err(Fault::new(at, format!("expected {wanted} {whither}, found {found}")))
    }

    fn id(&mut self, what: &str) -> Result<(Cow<'a, str>, usize), Fault> {
        match self.next()? {
            (Token::Word(word), at) => Ok((Cow::Borrowed(word), at)),
            (Token::Quoted(text), at) => Ok((text, at)),
            (other, at) => {
                Err(Fault::new(at, format!("expected {what}, found {}", other.describe())))
            }
        }
    }

    fn file(&mut self) -> Result<(), Fault> {
        let (mut first, mut at) = self.next()?;
        if first.is_keyword("strict") {
            (first, at) = self.next()?;
        }
        if first.is_keyword("graph") {
            return Err(Fault::new(at, "an undirected graph; expected `digraph`"));
        }
        if !first.is_keyword("digraph") {
            let found = first.describe();
            return Err(Fault::new(at, format!("expected `digraph`, found {found}")));
        }
        let name =
            if *self.peek()? == Token::OpenBrace { "".into() } else { self.id("a name or `{`")?.0 };
        self.expect(&Token::OpenBrace, "after `digraph`")?;
        self.open_cluster(name, at);
        self.statements()?;
        let (after, at) = self.next()?;
        if after != Token::End {
            let found = after.describe();
            return Err(Fault::new(at, format!("expected the end of the file, found {found}")));
        }
        Ok(())
    }

    fn open_cluster(&mut self, name: Cow<'a, str>, at: usize) -> ClusterId {
        let (nodes, edges) = (Vec::new(), Vec::new());
        self.clusters.push(Cluster { name, label: None, graph_name: None, at, nodes, edges });
        ClusterId((self.clusters.len() - 1) as u32)
    }

    /// Statements up to the brace that closes the file. `open` holds, for each brace, the cluster that nodes within
    /// belong to (that of the braces around, for a subgraph that is no cluster) and where it was opened.
    fn statements(&mut self) -> Result<(), Fault> {
        let mut open: Vec<(ClusterId, usize)> = vec![(ClusterId(0), self.clusters[0].at)];
        while let Some(&(cluster, opened)) = open.last() {
            let (token, at) = self.next()?;
            match token {
                Token::Semicolon => {}
                Token::CloseBrace => {
                    open.pop();
                }
                Token::End => {
                    let what = if open.len() == 1 { "graph" } else { "subgraph" };
                    return Err(Fault::new(opened, format!("this {what} lacks its closing `}}`")));
                }
                Token::OpenBrace => open.push((cluster, at)),
                _ if token.is_keyword("subgraph") => {
                    let inner = self.subgraph(cluster, at)?;
                    open.push((inner, at));
                }
                _ if ["graph", "node", "edge"].iter().any(|k| token.is_keyword(k)) => {
                    // Drawing defaults: nothing that is read here.
                    self.attributes(|_, _, _| Ok(()))?;
                }
                Token::Word(word) => self.node_or_edge(Cow::Borrowed(word), at, cluster)?,
                Token::Quoted(text) => self.node_or_edge(text, at, cluster)?,
                other => {
                    let found = other.describe();
                    return Err(Fault::new(at, format!("expected a statement, found {found}")));
                }
            }
            if open.len() > MAX_DEPTH {
                return Err(Fault::new(at, format!("subgraphs nested more than {MAX_DEPTH} deep")));
            }
        }
        Ok(())
    }

    fn subgraph(&mut self, around: ClusterId, at: usize) -> Result<ClusterId, Fault> {
        if self.skip_if(&Token::OpenBrace)? {
            return Ok(around);
        }
        let (name, _) = self.id("the name of a subgraph or `{`")?;
        self.expect(&Token::OpenBrace, "after the name of a subgraph")?;
        if !name.starts_with("cluster") {
            return Ok(around);
        }
        Ok(self.open_cluster(name, at))
    }

    /// What follows a name: `= value` (an attribute of the cluster), `-> …` (an edge) or the attributes of a node.
    fn node_or_edge(
        &mut self,
        name: Cow<'a, str>,
        at: usize,
        cluster: ClusterId,
    ) -> Result<(), Fault> {
        match self.peek()? {
            Token::Equals => {
                self.ahead = None;
                let (value, _) = self.id("a value after `=`")?;
                let row = &mut self.clusters[cluster.index()];
                match &*name {
                    "label" => row.label = Some(value),
                    "name" => row.graph_name = Some(value),
                    _ => {}
                }
                Ok(())
            }
            Token::Arrow => self.edge(name, at),
            Token::Line => Err(Fault::new(at, "an undirected edge; expected `->`")),
            Token::Colon => Err(Fault::new(at, "ports (`node:port`) are not read")),
            _ => self.node(name, at, cluster),
        }
    }

    fn node(&mut self, name: Cow<'a, str>, at: usize, cluster: ClusterId) -> Result<(), Fault> {
        let mut attributes = NodeAttributes::default();
        self.attributes(|key, value, at| {
            match key {
                "label" => attributes.label = Some(value),
                "shape" => attributes.shape = Some(value),
                "name" => attributes.node_name = Some(value),
                "function" => attributes.function = Some(value),
                "stream" => attributes.stream = Some(number(&value, at, "stream")?),
                _ => {}
            }
            Ok(())
        })?;
        if self.nodes.len() == MAX_DOT_NODES {
            return Err(Fault::new(at, format!("more than {MAX_DOT_NODES} nodes")));
        }
        let id = Statement(self.nodes.len() as u32);
        let symbol = self.symbol(name.clone());
        if self.symbols[symbol as usize].node.replace(id).is_some() {
            let name = super::token::shorten(&name);
            return Err(Fault::new(at, format!("node `{name}` is defined a second time")));
        }
        self.nodes.push(NodeStatement { name, at, cluster, attributes });
        self.clusters[cluster.index()].nodes.push(id);
        Ok(())
    }

    fn edge(&mut self, name: Cow<'a, str>, at: usize) -> Result<(), Fault> {
        let first = self.edges.len();
        let mut from = (self.symbol(name), at);
        while self.skip_if(&Token::Arrow)? {
            let (name, at) = self.id("the name of a node after `->`")?;
            if self.peek()? == &Token::Colon {
                return Err(Fault::new(at, "ports (`node:port`) are not read"));
            }
            let to = (self.symbol(name), at);
            if self.edges.len() == MAX_DOT_EDGES {
                return Err(Fault::new(at, format!("more than {MAX_DOT_EDGES} edges")));
            }
            self.edges.push(PendingEdge { from, to, data: EdgeData::FULL });
            from = to;
        }
        let mut data = EdgeData::FULL;
        self.attributes(|key, value, at| {
            match key {
                "from_port" => data.from_port = number(&value, at, "port")?,
                "to_port" => data.to_port = number(&value, at, "port")?,
                "edge_kind" => {
                    data.kind = match &*value {
                        "full" => EdgeKind::Full,
                        "programmatic" => EdgeKind::Programmatic,
                        _ => {
                            let problem = "expected the edge kind `full` or `programmatic`";
                            return Err(Fault::new(at, problem));
                        }
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        self.edges[first..].iter_mut().for_each(|edge| edge.data = data);
        Ok(())
    }

    fn symbol(&mut self, name: Cow<'a, str>) -> u32 {
        if let Some(&known) = self.names.get(&name) {
            return known;
        }
        let id = self.symbols.len() as u32;
        self.symbols.push(Symbol { name: name.clone(), node: None });
        self.names.insert(name, id);
        id
    }

    /// Any number of `[key=value …]`, separators optional.
    fn attributes(
        &mut self,
        mut take: impl FnMut(&str, Cow<'a, str>, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        while self.skip_if(&Token::OpenBracket)? {
            loop {
                match self.next()? {
                    (Token::CloseBracket, _) => break,
                    (Token::Semicolon | Token::Comma, _) => {}
                    (Token::Word(key), _) => {
                        let (value, at) = self.value(key)?;
                        take(key, value, at)?;
                    }
                    (Token::Quoted(key), _) => {
                        let (value, at) = self.value(&key)?;
                        take(&key, value, at)?;
                    }
                    (other, at) => {
                        let found = other.describe();
                        let problem = format!("expected an attribute or `]`, found {found}");
                        return Err(Fault::new(at, problem));
                    }
                }
            }
        }
        Ok(())
    }

    fn value(&mut self, key: &str) -> Result<(Cow<'a, str>, usize), Fault> {
        let key = super::token::shorten(key);
        self.expect(&Token::Equals, &format!("after the attribute `{key}`"))?;
        self.id("a value after `=`")
    }

    /// Names become rows: every end of an edge must be defined, in the cluster that the edge joins.
    fn resolve(self) -> Result<Document<'a>, Fault> {
        let Parser { mut clusters, nodes, symbols, edges: pending, .. } = self;
        let mut edges = Vec::with_capacity(pending.len());
        for PendingEdge { from, to, data } in pending {
            let end = |(symbol, at): (u32, usize)| {
                let Symbol { name, node } = &symbols[symbol as usize];
                node.ok_or_else(|| {
                    let name = super::token::shorten(name);
                    Fault::new(at, format!("an edge of node `{name}`, which is nowhere defined"))
                })
            };
            let (at, from, to) = (from.1, end(from)?, end(to)?);
            let [of, into] = [from, to].map(|node| nodes[node.index()].cluster);
            if of != into {
                let [of, into] = [of, into].map(|c| clusters[c.index()].name.clone());
                return Err(Fault::new(at, format!("an edge from `{of}` into `{into}`")));
            }
            clusters[of.index()].edges.push(edges.len() as u32);
            edges.push(EdgeStatement { from, to, data, at });
        }
        Ok(Document { clusters, nodes, edges })
    }
}

fn number<T: std::str::FromStr>(value: &str, at: usize, what: &str) -> Result<T, Fault> {
    value.parse().map_err(|_| {
        let value = super::token::shorten(value);
        Fault::new(at, format!("expected the number of a {what}, found `{value}`"))
    })
}
