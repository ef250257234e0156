//! Doubly linked chains of nodes, one chain per owner, in arrays.

use allocator_api2::vec::Vec as StateVec;

use crate::{Numbers, StateMemory};

const NONE: u32 = u32::MAX;

/// Chains of nodes in the order in which they were appended. A node is in at most one chain.
#[derive(Debug)]
pub struct Chains {
    /// First and last node of each owner's chain.
    ends: Ends,
    /// Nodes before and after each node.
    links: Ends,
    /// The first of the nodes that were given back; each links to the next one.
    free: u32,
    memory: StateMemory,
}

type Ends = StateVec<(u32, u32), StateMemory>;

/// Failures of chains.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// A number that is not one of an owner or node.
    #[error("{0} is not the number of an owner or a node")]
    BadNumber(i64),
    /// There is no memory for more nodes.
    #[error("there is no room for more elements: {0}")]
    NoRoom(std::io::Error),
}

use ChainError::BadNumber;

impl Chains {
    /// Creates chains without nodes.
    #[must_use]
    pub fn new(memory: &StateMemory) -> Self {
        let ends = || StateVec::new_in(memory.clone());
        Self { ends: ends(), links: ends(), free: NONE, memory: memory.clone() }
    }

    /// Returns nodes that are in no chain: those that were given back last, then new ones.
    ///
    /// # Errors
    /// There are no more numbers, or there is no memory; nothing is taken then.
    pub fn take(&mut self, count: usize) -> Result<Numbers, ChainError> {
        let (mut nodes, mut free) = (Vec::with_capacity(count), self.free);
        while nodes.len() < count
            && let Some(&(_, next)) = self.links.get(free as usize)
        {
            nodes.push(i64::from(free));
            free = next;
        }
        let (reused, next) = (nodes.len(), self.links.len());
        nodes.extend((next..).take(count - reused).map(|node| i64::try_from(node).unwrap_or(-1)));
        grow(&mut self.links, &nodes[reused..], &self.memory)?;
        self.free = free;
        Ok(nodes)
    }

    /// Takes back nodes that are in no chain any more.
    ///
    /// # Errors
    /// A number was never taken; those behind it are back then.
    pub fn give_back(&mut self, nodes: &[i64]) -> Result<(), ChainError> {
        // The first one is taken first.
        for &node in nodes.iter().rev() {
            self.links.get_mut(at(node)).ok_or(BadNumber(node))?.1 = self.free;
            self.free = number(at(node));
        }
        Ok(())
    }

    /// Appends each node to the chain of the owner at the same position.
    ///
    /// # Errors
    /// A number is negative or above the limit of 32 bits, or there is no memory; nothing is appended then.
    pub fn append(&mut self, owners: &[i64], nodes: &[i64]) -> Result<(), ChainError> {
        grow(&mut self.ends, owners, &self.memory)?;
        grow(&mut self.links, nodes, &self.memory)?;
        self.want(owners, nodes);
        for (&owner, &node) in owners.iter().zip(nodes) {
            let (owner, node) = (at(owner), at(node));
            let (first, last) = self.ends[owner];
            self.links[node] = (last, NONE);
            if last == NONE {
                self.ends[owner] = (number(node), number(node));
            } else {
                self.links[last as usize].1 = number(node);
                self.ends[owner] = (first, number(node));
            }
        }
        Ok(())
    }

    /// Removes each node from the chain of the owner at the same position, which has it.
    ///
    /// # Errors
    /// A number is negative or was never appended; earlier nodes are removed then.
    pub fn remove(&mut self, owners: &[i64], nodes: &[i64]) -> Result<(), ChainError> {
        self.want(owners, nodes);
        for (&owner, &node) in owners.iter().zip(nodes) {
            let ends = self.ends.get_mut(at(owner)).ok_or(BadNumber(owner))?;
            let &(before, after) = self.links.get(at(node)).ok_or(BadNumber(node))?;
            match self.links.get_mut(before as usize) {
                Some(link) => link.1 = after,
                None => ends.0 = after,
            }
            match self.links.get_mut(after as usize) {
                Some(link) => link.0 = before,
                None => ends.1 = before,
            }
        }
        Ok(())
    }

    /// Returns the length of each owner's chain, and the nodes of all of them in order.
    #[must_use]
    pub fn collect(&self, owners: &[i64]) -> (Numbers, Numbers) {
        self.want(owners, &[]);
        let mut nodes = Vec::with_capacity(owners.len());
        let lengths = owners.iter().map(|&owner| {
            let before = nodes.len();
            let mut node = self.ends.get(at(owner)).map_or(NONE, |ends| ends.0);
            while let Some(&(_, after)) = self.links.get(node as usize) {
                nodes.push(i64::from(node));
                node = after;
            }
            i64::try_from(nodes.len() - before).unwrap_or(i64::MAX)
        });
        (lengths.collect(), nodes)
    }

    /// Has the kernel begin to read the ends of chains, the first node of each, and some nodes.
    fn want(&self, owners: &[i64], nodes: &[i64]) {
        self.memory.want_each(&self.ends, owners.iter().map(|&owner| at(owner)));
        self.memory.want_each(&self.links, nodes.iter().map(|&node| at(node)));
        let ends = owners.iter().filter_map(|&owner| self.ends.get(at(owner)));
        self.memory.want_each(&self.links, ends.map(|ends| ends.0 as usize));
    }

    /// Empties the chains of these owners.
    pub fn clear(&mut self, owners: &[i64]) {
        for &owner in owners {
            if let Some(ends) = self.ends.get_mut(at(owner)) {
                *ends = (NONE, NONE);
            }
        }
    }
}

/// The index of a number; a negative one is past the end of everything.
fn at(value: i64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "`grow` refuses larger ones")]
fn number(index: usize) -> u32 {
    index as u32
}

fn grow(items: &mut Ends, numbers: &[i64], memory: &StateMemory) -> Result<(), ChainError> {
    let refused = numbers.iter().find(|&&n| u32::try_from(n).map_or(true, |n| n == NONE));
    if let Some(&refused) = refused {
        return Err(BadNumber(refused));
    }
    let needed = numbers.iter().copied().max().map_or(0, |most| at(most) + 1);
    if needed > items.len() {
        let reserved = items.try_reserve(needed - items.len());
        reserved.map_err(|_| ChainError::NoRoom(memory.failure()))?;
        items.resize(needed, (NONE, NONE));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Append(i64),
        Remove(usize),
        Clear(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..5i64).prop_map(Step::Append),
            2 => (0..100usize).prop_map(Step::Remove),
            1 => (0..5i64).prop_map(Step::Clear),
        ];
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn chains_are_lists(steps in steps()) {
            let mut chains = Chains::new(&StateMemory::default());
            let mut model: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Append(owner) => {
                        let node = chains.take(1).unwrap()[0];
                        assert!(model.values().flatten().all(|other| *other != node));
                        assert!(node <= 60, "nodes that were given back are taken first");
                        chains.append(&[owner], &[node]).unwrap();
                        model.entry(owner).or_default().push(node);
                    }
                    Step::Remove(nth) => {
                        let all: Vec<_> = model.iter().flat_map(|(o, l)| l.iter().map(|n| (*o, *n))).collect();
                        if let Some(&(owner, node)) = all.get(nth % all.len().max(1)) {
                            chains.remove(&[owner], &[node]).unwrap();
                            chains.give_back(&[node]).unwrap();
                            model.get_mut(&owner).unwrap().retain(|other| *other != node);
                        }
                    }
                    Step::Clear(owner) => {
                        let (_, nodes) = chains.collect(&[owner]);
                        chains.clear(&[owner]);
                        chains.give_back(&nodes).unwrap();
                        model.remove(&owner);
                    }
                }
                let owners: Vec<i64> = (0..6).collect();
                let lists: Vec<_> = owners.iter().map(|o| model.get(o).cloned().unwrap_or_default()).collect();
                let lengths: Vec<_> = lists.iter().map(|list| i64::try_from(list.len()).unwrap()).collect();
                prop_assert_eq!(chains.collect(&owners), (lengths, lists.concat()));
            }
        }
    }

    #[test]
    fn nodes_that_were_given_back_are_taken_in_their_order() {
        let mut chains = Chains::new(&StateMemory::default());
        assert_eq!(chains.take(4).unwrap(), [0, 1, 2, 3]);
        chains.give_back(&[1, 3]).unwrap();
        chains.give_back(&[2]).unwrap();
        assert_eq!(chains.take(5).unwrap(), [2, 1, 3, 4, 5]);
        assert!(matches!(chains.give_back(&[6]), Err(BadNumber(6))));
    }

    #[test]
    fn numbers_outside_the_limits_are_refused() {
        let mut chains = Chains::new(&StateMemory::default());
        assert!(matches!(chains.append(&[0], &[-1]), Err(BadNumber(-1))));
        let large = i64::from(NONE);
        assert!(matches!(chains.append(&[large], &[0]), Err(BadNumber(number)) if number == large));
        assert!(matches!(chains.remove(&[0], &[7]), Err(BadNumber(7))));
        assert_eq!(chains.collect(&[-1, 9]), (vec![0, 0], vec![]));
    }
}
