//! Lists come in pages, and pages go on where the last one ended, however many rows were added
//! meanwhile.

use deadstop_core::Time;

use crate::error::StoreError;

/// The longest page.
const MOST: u32 = 1000;

/// Which part of a list is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paging {
    /// At most so many items; never more than a thousand.
    pub limit: u32,
    /// What the page before gave as [`Page::next`].
    pub cursor: Option<String>,
}

impl Default for Paging {
    fn default() -> Paging {
        Paging { limit: 50, cursor: None }
    }
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// The items, in order.
    pub items: Vec<T>,
    /// Where the next page begins; nothing at the end.
    pub next: Option<String>,
}

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    /// From here on.
    pub from: Option<Time>,
    /// Until just before here.
    pub to: Option<Time>,
}

/// In which order a list comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The newest first.
    #[default]
    Newest,
    /// The oldest first, as a timeline is read.
    Oldest,
}

impl Paging {
    /// The first items.
    pub fn first(limit: u32) -> Paging {
        Paging { limit, cursor: None }
    }

    /// One more than wanted: whether it is there says whether there is a next page.
    pub(crate) fn rows(&self) -> u32 {
        self.wanted() + 1
    }

    /// The cursor as a number.
    pub(crate) fn number(&self) -> Result<Option<i64>, StoreError> {
        let read = |cursor: &String| cursor.parse().map_err(|_| StoreError::Cursor);
        self.cursor.as_ref().map(read).transpose()
    }

    /// The cursor as a time and an id.
    pub(crate) fn time_and_id(&self) -> Result<Option<(i64, &str)>, StoreError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let (time, id) = cursor.split_once('.').ok_or(StoreError::Cursor)?;
        Ok(Some((time.parse().map_err(|_| StoreError::Cursor)?, id)))
    }

    /// A page of what was found, with the cursor of its last item.
    pub(crate) fn page<T>(&self, mut items: Vec<T>, cursor: impl Fn(&T) -> String) -> Page<T> {
        let wanted = self.wanted() as usize;
        let more = items.len() > wanted;
        items.truncate(wanted);
        let next = items.last().filter(|_| more).map(cursor);
        Page { items, next }
    }

    fn wanted(&self) -> u32 {
        self.limit.clamp(1, MOST)
    }
}
