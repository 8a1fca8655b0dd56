//! A graph for the terminal: a tree with rails where it is small, else a histogram of its levels.
//!
//! In: a picture. Out: lines of text, no wider than asked, without anything that a terminal would obey; for terminals
//! without Unicode, [`ascii`]. Redundant edges are left out of trees and counted. Linear, but for the rails of trees, which
//! are few.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::collapse::link;
use crate::layout::Link;
use crate::layout::layers::{Order, order};
use crate::picture::{Group, GroupIx, Node, NodeIx, Picture, PictureError};
use crate::text::{brief, columns, count, elide, plain, thousands};

/// Columns of a line where nobody knows better.
pub const WIDTH: usize = 100;
/// The fewest columns that are kept to.
const LEAST_WIDTH: usize = 40;
/// Nodes of a tree, over all graphs of the picture.
const TREE_NODES: usize = 48;
/// Rails of a tree side by side.
const RAILS: usize = 12;
/// Rows of a histogram.
const BANDS: usize = 16;
const LONGEST_BAR: usize = 60;

/// Draws a picture as text of so many columns, or of 40 if they are fewer.
///
/// ```
/// use phonograph_report::picture::{Edge, Group, Node, NodeClass, NodeIx, Picture};
/// use phonograph_report::terminal::terminal;
///
/// let mut main = Group::new("main");
/// main.nodes = ["a", "b", "c", "d"].map(|n| Node::new(NodeClass::Kernel, n)).into();
/// main.edges = [(0, 1), (0, 2), (1, 3), (2, 3)].map(|(a, b)| Edge::new(NodeIx(a), NodeIx(b))).into();
/// let drawing = terminal(&Picture { title: "diamond".into(), groups: vec![main] }, 80)?;
/// assert_eq!(drawing, "○   0 a\n├─╮\n○ │ 1 b\n│ ○ 2 c\n○─╯ 3 d\n");
/// # Ok::<(), phonograph_report::picture::PictureError>(())
/// ```
///
/// # Errors
/// [`PictureError`] if an index names nothing or the edges of a graph form a cycle.
pub fn terminal(picture: &Picture, width: usize) -> Result<String, PictureError> {
    picture.check()?;
    let width = width.max(LEAST_WIDTH);
    let nodes: usize = picture.groups.iter().map(|group| group.nodes.len()).sum();
    if nodes <= TREE_NODES
        && let Some(trees) = trees(picture, width)?
    {
        return Ok(trees);
    }
    picture
        .groups
        .first()
        .map_or_else(|| Ok(String::new()), |main| histogram(GroupIx(0), main, width))
}

fn ordered(ix: GroupIx, group: &Group) -> Result<Order, PictureError> {
    let links: Vec<Link> = group.edges.iter().map(link).collect();
    order(group.nodes.len(), &links).map_err(|nodes| PictureError::Cycle { group: ix, nodes })
}

/// Nodes a level, in bands of levels.
fn histogram(ix: GroupIx, group: &Group, width: usize) -> Result<String, PictureError> {
    let Order { level, .. } = ordered(ix, group)?;
    let depth = level.iter().max().map_or(0, |&last| last as usize + 1);
    let mut widths = vec![0usize; depth];
    for &level in &level {
        widths[level as usize] += 1;
    }
    let height = depth.div_ceil(BANDS).max(1);
    let most = widths.chunks(height).map(|band| band.iter().sum::<usize>()).max().unwrap_or(0);
    let bands = widths.chunks(height).enumerate().map(|(band, levels)| {
        let (first, last) = (band * height, band * height + levels.len() - 1);
        let name = if first == last { format!("{first}") } else { format!("{first}–{last}") };
        let sum: usize = levels.iter().sum();
        let widest = levels.iter().max().copied().unwrap_or(0);
        let words = count(sum, "node");
        let more = match height {
            1 => words.clone(),
            _ => format!("{words}, widest level {}", thousands(widest)),
        };
        (name, sum, [more, words])
    });
    let bands: Vec<(String, usize, [String; 2])> = bands.collect();
    let names = bands.iter().map(|(name, ..)| columns(name)).max().unwrap_or(0);
    // Says less where bars would get too short.
    let room = |less: usize| {
        let words = bands.iter().map(|(.., words)| columns(&words[less])).max().unwrap_or(0);
        width.saturating_sub("level ".len() + names + 2 + words).clamp(4, LONGEST_BAR)
    };
    let less = usize::from(room(0) < 8);
    let room = room(less);
    let mut out = String::new();
    for (name, sum, words) in &bands {
        let (bar, words) = (bar(*sum, most, room), &words[less]);
        writeln!(out, "level {name:>names$} {bar:<room$} {words}").expect("a String takes all");
    }
    Ok(out)
}

/// A bar in eighths of a column.
fn bar(n: usize, most: usize, room: usize) -> String {
    const PARTS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (n * room * 8).div_ceil(most.max(1));
    "█".repeat(eighths / 8) + PARTS[eighths % 8]
}

/// A tree for each graph, the inner ones under headings; nothing if one needs too many rails.
fn trees(picture: &Picture, width: usize) -> Result<Option<String>, PictureError> {
    let mut out = String::new();
    for (g, group) in picture.groups.iter().enumerate() {
        let ix = GroupIx(g as u32);
        ordered(ix, group)?;
        if g > 0 {
            writeln!(out, "{}", elide(&plain(&group.title), width)).expect("a String takes all");
        }
        let Some(drawn) = tree(group, width) else { return Ok(None) };
        out.push_str(&drawn);
    }
    Ok(Some(out))
}

fn tree(group: &Group, width: usize) -> Option<String> {
    let n = group.nodes.len();
    let mut waiting = vec![0usize; n];
    let mut after: Vec<Vec<NodeIx>> = vec![Vec::new(); n];
    let mut left_out = 0;
    for edge in &group.edges {
        if edge.redundant {
            left_out += 1;
        } else {
            waiting[edge.to.index()] += 1;
            after[edge.from.index()].push(edge.to);
        }
    }
    let mut roots: BTreeSet<NodeIx> =
        (0..n as u32).map(NodeIx).filter(|node| waiting[node.index()] == 0).collect();
    // What each rail leads to; a rail that ended is free.
    let mut rails: Vec<Option<NodeIx>> = Vec::new();
    let mut rows: Vec<(String, Option<NodeIx>)> = Vec::new();
    loop {
        let led_to = rails.iter().flatten().find(|node| waiting[node.index()] == 0).copied();
        let Some(node) = led_to.or_else(|| roots.pop_first()) else { break };
        let ends: Vec<usize> = (0..rails.len()).filter(|&r| rails[r] == Some(node)).collect();
        let own = ends.first().copied().unwrap_or_else(|| free(&mut rails));
        let mark = if group.nodes[node.index()].critical { '●' } else { '○' };
        rows.push((row(&rails, own, &ends, mark, '╯'), Some(node)));
        for &rail in &ends {
            rails[rail] = None;
        }
        let mut opened = Vec::new();
        for (k, &next) in after[node.index()].iter().enumerate() {
            // Every consumer waits for one rail less: rails carry edges.
            waiting[next.index()] -= 1;
            let rail = if k == 0 { own } else { free(&mut rails) };
            rails[rail] = Some(next);
            opened.push(rail);
        }
        if opened.len() > 1 {
            rows.push((row(&rails, own, &opened, '├', '╮'), None));
        }
        while rails.last() == Some(&None) {
            rails.pop();
        }
        if rails.len() > RAILS {
            return None;
        }
    }
    let rail_width = rows.iter().map(|(row, _)| columns(row)).max().unwrap_or(0);
    let mut out = String::new();
    for (row, node) in rows {
        match node {
            Some(node) => {
                let drawn = &group.nodes[node.index()];
                let words = elide(&words(node, drawn, width), width - rail_width - 1);
                let gap = " ".repeat(rail_width - columns(&row));
                writeln!(out, "{row}{gap} {words}").expect("a String takes all");
            }
            None => writeln!(out, "{row}").expect("a String takes all"),
        }
    }
    if left_out > 0 {
        writeln!(out, "({} not drawn)", count(left_out, "redundant edge"))
            .expect("a String takes all");
    }
    Some(out)
}

/// The first free rail, made if there is none.
fn free(rails: &mut Vec<Option<NodeIx>>) -> usize {
    let place = rails.iter().position(Option::is_none).unwrap_or(rails.len());
    if place == rails.len() {
        rails.push(None);
    }
    place
}

/// A row of rails in which `own` is marked and joined to `others`, which bend there.
fn row(rails: &[Option<NodeIx>], own: usize, others: &[usize], mark: char, bend: char) -> String {
    let low = others.iter().copied().fold(own, usize::min);
    let high = others.iter().copied().fold(own, usize::max);
    let left_bend = if bend == '╯' { '╰' } else { '╭' };
    let mut out = String::new();
    for rail in 0..rails.len().max(high + 1) {
        let inside = (low..=high).contains(&rail);
        out.push(if rail == own {
            mark
        } else if others.contains(&rail) {
            match () {
                () if rail == high => bend,
                () if rail == low => left_bend,
                () if bend == '╯' => '┴',
                () => '┬',
            }
        } else {
            match (rails.get(rail).copied().flatten().is_some(), inside) {
                (true, true) => '┼',
                (true, false) => '│',
                (false, true) => '─',
                (false, false) => ' ',
            }
        });
        out.push(if rail >= low && rail < high { '─' } else { ' ' });
    }
    out.truncate(out.trim_end().len());
    out
}

fn words(ix: NodeIx, node: &Node, width: usize) -> String {
    let (base, arguments) = brief(&node.label);
    let mut words = format!("{ix} {base}{arguments}");
    // Names come first; what they are fits only beside short ones.
    if columns(&words) < width / 2 {
        for line in &node.lines {
            write!(words, ", {line}").expect("a String takes all");
        }
    } else {
        words = elide(&words, width / 2);
        for line in node.lines.iter().take(1) {
            write!(words, ", {line}").expect("a String takes all");
        }
    }
    if node.disabled {
        words.push_str(", disabled");
    }
    plain(&words)
}

/// The text without anything but ASCII, column for column except for wide characters: for terminals that have no more.
///
/// ```
/// use phonograph_report::terminal::ascii;
///
/// assert_eq!(ascii("● 3 gemm → 4 µs ─╯"), "* 3 gemm > 4 us -'");
/// ```
pub fn ascii(text: &str) -> String {
    let one = |c: char| match c {
        '○' => 'o',
        '●' => '*',
        '│' => '|',
        '─' | '–' | '—' | '−' => '-',
        '├' | '┬' | '┴' | '┼' => '+',
        '╭' | '╮' => '.',
        '╰' | '╯' | '’' => '\'',
        '“' | '”' => '"',
        '█' | '▉' | '▊' | '▋' | '▌' => '#',
        '▍' | '▎' | '▏' => ' ',
        '→' | '⇒' | '▸' => '>',
        '…' => '~',
        '×' => 'x',
        'µ' => 'u',
        '·' => '.',
        c if c.is_ascii() => c,
        _ => '?',
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Edge, NodeClass};

    fn picture(n: u32, edges: &[(u32, u32)]) -> Picture {
        let mut group = Group::new("main");
        group.nodes = (0..n).map(|i| Node::new(NodeClass::Kernel, format!("k{i}"))).collect();
        group.edges = edges.iter().map(|&(a, b)| Edge::new(NodeIx(a), NodeIx(b))).collect();
        Picture { title: "test".into(), groups: vec![group] }
    }

    #[test]
    fn trees_have_a_rail_for_each_edge_that_is_open() {
        for (name, n, edges, want) in [
            ("nothing", 0, &[][..], ""),
            ("a chain", 2, &[(0, 1)], "○ 0 k0\n○ 1 k1\n"),
            ("apart", 2, &[], "○ 0 k0\n○ 1 k1\n"),
            (
                "three branches",
                5,
                &[(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 4)],
                "○     0 k0\n├─┬─╮\n○ │ │ 1 k1\n│ ○ │ 2 k2\n│ │ ○ 3 k3\n○─┴─╯ 4 k4\n",
            ),
            (
                "an edge across",
                4,
                &[(0, 1), (0, 3), (1, 2), (2, 3)],
                "○   0 k0\n├─╮\n○ │ 1 k1\n○ │ 2 k2\n○─╯ 3 k3\n",
            ),
            (
                "a rail that passes",
                5,
                &[(0, 2), (1, 3), (0, 4), (2, 4), (3, 4)],
                "○     0 k0\n├─╮\n○ │   2 k2\n│ │ ○ 1 k1\n│ │ ○ 3 k3\n○─┴─╯ 4 k4\n",
            ),
        ] {
            assert_eq!(terminal(&picture(n, edges), WIDTH).expect("valid"), want, "{name}");
        }
    }

    #[test]
    fn large_graphs_have_levels() {
        let edges: Vec<(u32, u32)> = (1..200).map(|i| (i / 2, i)).filter(|(a, b)| a != b).collect();
        let drawn = terminal(&picture(200, &edges), WIDTH).expect("valid");
        assert_eq!(drawn.lines().count(), 9, "{drawn}");
        assert!(drawn.ends_with("72 nodes\n"), "{drawn}");
        let chain: Vec<(u32, u32)> = (1..200).map(|i| (i - 1, i)).collect();
        let drawn = terminal(&picture(200, &chain), WIDTH).expect("valid");
        assert!(drawn.starts_with("level    0–12 ███"), "{drawn}");
        assert!(drawn.contains("13 nodes, widest level 1"), "{drawn}");
    }

    #[test]
    fn every_node_has_one_line_no_wider_than_a_terminal() {
        arbtest::arbtest(|u| {
            let n = u.int_in_range(1..=30u32)?;
            let mut edges = Vec::new();
            for to in 1..n {
                for _ in 0..u.int_in_range(0..=2u8)? {
                    edges.push((u.int_in_range(0..=to - 1)?, to));
                }
            }
            let mut picture = picture(n, &edges);
            for node in &mut picture.groups[0].nodes {
                if u.ratio(1, 4)? {
                    node.label =
                        format!("\u{1b}[31m{}\n\u{202e}", "核".repeat(u.int_in_range(0..=90)?));
                }
            }
            let width = u.int_in_range(LEAST_WIDTH..=200)?;
            let drawn = terminal(&picture, width).expect("valid");
            for line in drawn.lines() {
                assert!(columns(line) <= width, "{} columns of {width}: {line}", columns(line));
            }
            let plain = ascii(&drawn);
            assert!(plain.is_ascii() && plain.lines().count() == drawn.lines().count());
            assert!(!drawn.contains(['\u{1b}', '\u{202e}']));
            if !drawn.starts_with("level") {
                let marks = drawn.lines().filter(|line| line.contains('○')).count();
                assert_eq!(marks, n as usize, "{drawn}");
            }
            Ok(())
        })
        .budget_ms(400);
    }
}
