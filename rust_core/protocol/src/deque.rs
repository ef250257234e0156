//! The queue of a subpartition, gate or channel: priority elements first.

use std::collections::VecDeque;

use thiserror::Error;

/// A queue with a leading section of priority elements; first in, first out within each section.
///
/// Elements are found by a predicate and never by equality, so that equal buffers stay distinct.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct PrioritizedDeque<T> {
    elements: VecDeque<T>,
    priority_len: usize,
}

impl<T> PrioritizedDeque<T> {
    /// Creates an empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { elements: VecDeque::new(), priority_len: 0 }
    }

    /// Appends an ordinary element.
    pub fn add(&mut self, element: T) {
        self.elements.push_back(element);
    }

    /// Adds an element at the end of the priority section.
    pub fn add_priority(&mut self, element: T) {
        self.elements.insert(self.priority_len, element);
        self.priority_len += 1;
    }

    /// Moves the first matching element to the end of the priority section, unless it is in that
    /// section already. Returns false if none matches.
    pub fn prioritize(&mut self, pred: impl FnMut(&T) -> bool) -> bool {
        let Some(at) = self.elements.iter().position(pred) else {
            return false;
        };
        if at >= self.priority_len {
            let element = self.elements.remove(at).expect("position() returned this index");
            self.add_priority(element);
        }
        true
    }

    /// Takes the first element.
    pub fn poll(&mut self) -> Option<T> {
        let element = self.elements.pop_front()?;
        self.priority_len = self.priority_len.saturating_sub(1);
        Some(element)
    }

    /// Takes the last element; a priority element if there are no others.
    pub fn poll_last(&mut self) -> Option<T> {
        let element = self.elements.pop_back()?;
        self.priority_len = self.priority_len.min(self.elements.len());
        Some(element)
    }

    /// The first element.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.elements.front()
    }

    /// The first element, to change in place.
    #[must_use]
    pub fn peek_mut(&mut self) -> Option<&mut T> {
        self.elements.front_mut()
    }

    /// The last element; a priority element if there are no others.
    #[must_use]
    pub fn peek_last(&self) -> Option<&T> {
        self.elements.back()
    }

    /// The last element, to change in place.
    #[must_use]
    pub fn peek_last_mut(&mut self) -> Option<&mut T> {
        self.elements.back_mut()
    }

    /// Removes the first matching element.
    pub fn remove_first(&mut self, pred: impl FnMut(&T) -> bool) -> Result<T, NotFound> {
        let at = self.elements.iter().position(pred).ok_or(NotFound)?;
        if at < self.priority_len {
            self.priority_len -= 1;
        }
        self.elements.remove(at).ok_or(NotFound)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// Returns true if there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Number of priority elements, which come first.
    #[must_use]
    pub const fn priority_len(&self) -> usize {
        self.priority_len
    }

    /// Iterates over the elements in the order of polling.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.elements.iter()
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        self.elements.clear();
        self.priority_len = 0;
    }
}

impl<T> Default for PrioritizedDeque<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// No element of the queue matches.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("no element of the queue matches")]
pub struct NotFound;
