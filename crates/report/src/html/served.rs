//! Pages whose server is asked for what lies in the boxes of large graphs.
//!
//! In: pages, once; then questions. Out: the document, and answers as JSON, each made when it is asked for, so that a
//! graph of a million nodes costs no more than what is looked at. Linear in the graph for each question, plus the layout
//! of what is opened.

use std::collections::BTreeSet;

use serde::Serialize;

use super::data::{self, Boxes, GroupData, Texts};
use super::{Page, PageError, Section, document};
use crate::collapse::Collapsed;
use crate::picture::{GroupIx, Node, NodeIx, Picture};

/// Nodes that a search tells; all are counted.
const MAX_FOUND: usize = 500;

/// Pages and their document.
pub struct Served {
    pages: Vec<Page>,
    document: String,
}

/// Which picture is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureAt {
    /// The position of the page.
    pub page: usize,
    /// The position in [`Page::sections`].
    pub section: usize,
    /// Of a comparison: 0 for what was, 1 for what is.
    pub side: usize,
}

/// What is asked about a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// What lies in a box: its number in the collapsed group, then in that box, and so on.
    Open(GroupIx, &'a [u32]),
    /// Where a node of a collapsed group is found.
    Where(GroupIx, NodeIx),
    /// Which nodes of collapsed groups have all these words, parted by white space.
    Find(&'a str),
}

#[derive(Serialize)]
struct Opened {
    strings: Vec<String>,
    group: GroupData,
}

#[derive(Default, Serialize)]
struct Found {
    /// How many there are.
    count: usize,
    /// The boxes that they are in: group and number.
    boxes: BTreeSet<(u32, u32)>,
    /// The first of them: group, number, name, the way to the part that shows it, position there.
    nodes: Vec<(u32, u32, String, Vec<u32>, u32)>,
}

impl Served {
    /// Makes the document.
    ///
    /// # Errors
    /// [`PageError`] if a section cannot be drawn.
    ///
    /// ```
    /// use phonograph_report::html::{Page, PictureAt, Question, Section, Served};
    /// use phonograph_report::picture::{Group, GroupIx, Node, NodeClass, Picture};
    ///
    /// let mut main = Group::new("main");
    /// main.nodes = vec![Node::new(NodeClass::Kernel, "k"); 100_000];
    /// let picture = Picture { title: "large".into(), groups: vec![main] };
    /// let page = Page { sections: vec![Section::Graph(picture)], ..Page::default() };
    /// let served = Served::new("large", vec![page])?;
    /// let at = PictureAt { page: 0, section: 0, side: 0 };
    /// assert!(served.answer(at, Question::Open(GroupIx(0), &[7])).is_some());
    /// assert!(served.answer(at, Question::Open(GroupIx(0), &[7_000])).is_none());
    /// # Ok::<(), phonograph_report::html::PageError>(())
    /// ```
    pub fn new(title: &str, pages: Vec<Page>) -> Result<Self, PageError> {
        let document = document(title, &pages, Boxes::Served)?;
        Ok(Served { pages, document })
    }

    /// The document.
    pub fn document(&self) -> &str {
        &self.document
    }

    /// The answer as JSON; nothing if the question names what is not there.
    pub fn answer(&self, at: PictureAt, question: Question) -> Option<String> {
        let picture = self.picture(at)?;
        let collapsed = Collapsed::of(picture);
        let levels = |group: GroupIx| {
            collapsed.has(group).then(|| collapsed.levels(picture, group).ok()).flatten()
        };
        match question {
            Question::Open(group, path) => {
                let part = levels(group)?.open(path)?;
                let boxes = part.numbers.is_empty();
                let mut texts = Texts::default();
                let mut data = data::part_data(part, picture, group, path, &mut texts).ok()?;
                if boxes {
                    data::ask_for_boxes(&mut data);
                }
                Some(data::json(&Opened { strings: texts.all, group: data }))
            }
            Question::Where(group, node) => {
                let place = levels(group)?.find(node)?;
                Some(data::json(&(place.path, place.position.0)))
            }
            Question::Find(words) => {
                let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
                let mut found = Found::default();
                for g in collapsed.groups().filter(|_| !words.is_empty()) {
                    let levels = levels(g)?;
                    for (n, node) in (0u32..).zip(&picture.groups[g.index()].nodes) {
                        if !has_all(node, &words) {
                            continue;
                        }
                        found.count += 1;
                        found.boxes.insert((g.0, levels.box_of(NodeIx(n))));
                        if found.nodes.len() < MAX_FOUND {
                            let place = levels.find(NodeIx(n))?;
                            let name = data::short(&node.label);
                            found.nodes.push((g.0, n, name, place.path, place.position.0));
                        }
                    }
                }
                Some(data::json(&found))
            }
        }
    }

    fn picture(&self, at: PictureAt) -> Option<&Picture> {
        match self.pages.get(at.page)?.sections.get(at.section)? {
            Section::Graph(picture) => Some(picture),
            Section::Comparison(pair) if at.side == 0 => Some(&pair.before),
            Section::Comparison(pair) => Some(&pair.after),
            Section::Timeline(_) | Section::Skyline(_) => None,
        }
    }
}

/// Whether each word is somewhere in what is said of a node, as the page itself searches.
fn has_all(node: &Node, words: &[String]) -> bool {
    let mut all = format!("{}\n{}", node.label, node.class.name());
    for line in &node.lines {
        all.push('\n');
        all.push_str(line);
    }
    for (name, value) in &node.facts {
        all.push_str(&format!("\n{name} {value}"));
    }
    let all = all.to_lowercase();
    words.iter().all(|word| all.contains(word.as_str()))
}
