//! Things that have numbers.

/// Things by their numbers, which are used again.
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

enum Slot<T> {
    Free,
    Here(T),
    /// A thread works on it.
    Away {
        unwanted: bool,
    },
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn put(&mut self, thing: T) -> u32 {
        if let Some(number) = self.free.pop() {
            self.slots[number as usize] = Slot::Here(thing);
            return number;
        }
        self.slots.push(Slot::Here(thing));
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut T> {
        match self.slots.get_mut(number as usize) {
            Some(Slot::Here(thing)) => Some(thing),
            _ => None,
        }
    }

    /// Takes it out for good. One that is away is dropped when it comes back.
    pub(crate) fn take(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        match std::mem::replace(slot, Slot::Free) {
            Slot::Here(thing) => {
                self.free.push(number);
                Some(thing)
            }
            Slot::Away { .. } => {
                *slot = Slot::Away { unwanted: true };
                None
            }
            Slot::Free => None,
        }
    }

    /// Takes it out for a while.
    pub(crate) fn lend(&mut self, number: u32) -> Option<T> {
        let slot = self.slots.get_mut(number as usize)?;
        match std::mem::replace(slot, Slot::Away { unwanted: false }) {
            Slot::Here(thing) => Some(thing),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Puts it back; returns it if its entry was removed meanwhile.
    pub(crate) fn give_back(&mut self, number: u32, thing: T) -> Option<T> {
        let Some(slot) = self.slots.get_mut(number as usize) else { return Some(thing) };
        if matches!(slot, Slot::Away { unwanted: false }) {
            *slot = Slot::Here(thing);
            return None;
        }
        *slot = Slot::Free;
        self.free.push(number);
        Some(thing)
    }
}
