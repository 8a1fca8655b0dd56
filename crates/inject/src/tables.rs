//! What was defined already: texts and stacks by their contents, in tables that do not grow beyond a size.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// The most entries of a table. A table that is full forgets everything, so that what comes up again is defined again.
const MOST: usize = 1 << 15;

/// Ids by contents. Contents are known by a hash of 128 bits.
pub struct Known {
    ids: HashMap<[u64; 2], u32>,
    hashers: [RandomState; 2],
    next: u32,
}

impl Known {
    pub fn new() -> Self {
        Self { ids: HashMap::new(), hashers: [RandomState::new(), RandomState::new()], next: 0 }
    }

    /// The id of these contents, and whether it is new and has to be defined.
    pub fn id(&mut self, contents: &(impl Hash + ?Sized)) -> (u32, bool) {
        let key = [self.hashers[0].hash_one(contents), self.hashers[1].hash_one(contents)];
        if let Some(id) = self.ids.get(&key) {
            return (*id, false);
        }
        if self.ids.len() == MOST {
            self.ids.clear();
        }
        let id = self.next;
        self.next += 1;
        self.ids.insert(key, id);
        (id, true)
    }
}

#[cfg(test)]
mod tests {
    use super::{Known, MOST};

    #[test]
    fn contents_have_one_id_until_the_table_is_full() {
        let mut known = Known::new();
        assert_eq!(known.id("a"), (0, true));
        assert_eq!(known.id("b"), (1, true));
        assert_eq!(known.id("a"), (0, false));
        (0..MOST).for_each(|number| assert!(known.id(&number).1));
        assert_eq!(known.ids.len(), 2);
        assert_eq!(known.id("a"), (MOST as u32 + 2, true));
    }
}
