//! The partitions of a process by id, and the requests that wait for one to appear (spec 4.8).
//!
//! Decision: ADR 0003.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use headgate_memory::lock;
use headgate_protocol::PartitionId;

use crate::error::{ExchangeError, Result};
use crate::partition::ResultPartition;
use crate::view::ReadablePartition;

/// Limit of released partitions that are remembered. A request for one of them is refused at once.
const MAX_GONE: usize = 4096;

/// Notified once, outside the manager's lock, that a partition appeared.
pub(crate) trait PartitionListener: Send + Sync {
    /// The requested partition was registered.
    fn partition_created(&self, partition: &Arc<dyn ReadablePartition>);
}

/// Result of a request for a partition.
pub(crate) enum Lookup {
    /// It exists.
    Found(Arc<dyn ReadablePartition>),
    /// It does not exist yet. The listener is called when it does.
    Waiting,
    /// It was released.
    Gone,
}

#[derive(Default)]
struct State {
    registered: HashMap<PartitionId, Arc<ResultPartition>>,
    /// Partitions of other processes, which have ended.
    served: HashMap<PartitionId, Arc<dyn ReadablePartition>>,
    waiting: HashMap<PartitionId, Vec<Arc<dyn PartitionListener>>>,
    gone: HashSet<PartitionId>,
    /// The ids of `gone`, oldest first.
    oldest: VecDeque<PartitionId>,
    /// True once the environment is closed: no partition will appear any more.
    closed: bool,
}

impl State {
    /// # Errors
    /// When no partition of this id may appear.
    fn check_new(&self, id: PartitionId) -> Result<()> {
        if self.closed {
            return Err(ExchangeError::Closed("shuffle environment"));
        }
        let is_known = self.registered.contains_key(&id) || self.served.contains_key(&id);
        if is_known || self.gone.contains(&id) {
            return Err(ExchangeError::State("a partition of this id was registered before"));
        }
        Ok(())
    }

    fn find(&self, id: PartitionId) -> Option<Arc<dyn ReadablePartition>> {
        let own = self.registered.get(&id).map(|own| Arc::<ResultPartition>::clone(own) as _);
        own.or_else(|| self.served.get(&id).cloned())
    }

    fn remember(&mut self, id: PartitionId) {
        if self.gone.insert(id) {
            self.oldest.push_back(id);
        }
        if self.oldest.len() > MAX_GONE
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.gone.remove(&oldest);
        }
    }
}

/// The registry in which consumers find the partitions of this process.
#[derive(Default)]
pub(crate) struct PartitionManager(Mutex<State>);

impl PartitionManager {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Registers a partition, and notifies the requests that wait for it.
    ///
    /// # Errors
    /// When a partition of this id is or was registered.
    pub(crate) fn register(&self, partition: &Arc<ResultPartition>) -> Result<()> {
        let id = partition.id();
        let mut state = self.lock();
        state.check_new(id)?;
        state.registered.insert(id, Arc::clone(partition));
        Self::tell_waiting(state, id);
        Ok(())
    }

    /// Serves a partition of a process that has ended, and notifies the requests that wait for it.
    ///
    /// # Errors
    /// When a partition of this id is or was registered.
    pub(crate) fn serve(
        &self,
        id: PartitionId,
        partition: Arc<dyn ReadablePartition>,
    ) -> Result<()> {
        let mut state = self.lock();
        state.check_new(id)?;
        state.served.insert(id, partition);
        Self::tell_waiting(state, id);
        Ok(())
    }

    /// Serves a partition no more. Consumers that read it go on. False if it is not served.
    pub(crate) fn withdraw(&self, id: PartitionId) -> bool {
        let mut state = self.lock();
        let served = state.served.remove(&id);
        if served.is_some() {
            state.remember(id);
        }
        drop(state);
        served.is_some()
    }

    fn tell_waiting(mut state: MutexGuard<'_, State>, id: PartitionId) {
        let waiting = state.waiting.remove(&id).unwrap_or_default();
        let Some(partition) = state.find(id) else { return };
        drop(state);
        for listener in waiting {
            listener.partition_created(&partition);
        }
    }

    /// Finds a partition. If it does not exist yet, the listener is called once it does.
    pub(crate) fn find_or_wait(
        &self,
        id: PartitionId,
        listener: &Arc<dyn PartitionListener>,
    ) -> Lookup {
        let mut state = self.lock();
        if let Some(partition) = state.find(id) {
            return Lookup::Found(partition);
        }
        if state.closed || state.gone.contains(&id) {
            return Lookup::Gone;
        }
        state.waiting.entry(id).or_default().push(Arc::clone(listener));
        Lookup::Waiting
    }

    /// Removes a listener whose request waits no more.
    pub(crate) fn forget(&self, id: PartitionId, listener: &Arc<dyn PartitionListener>) {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.get_mut(&id) {
            waiting.retain(|other| !Arc::ptr_eq(other, listener));
            if waiting.is_empty() {
                state.waiting.remove(&id);
            }
        }
    }

    /// Number of requests that wait for a partition.
    #[cfg(test)]
    fn num_waiting(&self) -> usize {
        self.lock().waiting.values().map(Vec::len).sum()
    }

    pub(crate) fn release(&self, id: PartitionId) {
        let mut state = self.lock();
        let partition = state.registered.remove(&id);
        if partition.is_some() {
            state.remember(id);
        }
        drop(state);
        if let Some(partition) = partition {
            partition.close();
        }
    }

    pub(crate) fn fail_all(&self, cause: &ExchangeError) {
        for partition in self.all() {
            partition.fail(cause);
        }
    }

    pub(crate) fn close_all(&self) {
        let mut state = self.lock();
        state.closed = true;
        let partitions: Vec<_> = state.registered.drain().map(|(_, partition)| partition).collect();
        let waiting = std::mem::take(&mut state.waiting);
        let served = std::mem::take(&mut state.served);
        drop(state);
        drop((waiting, served));
        for partition in partitions {
            partition.shut_down();
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<ResultPartition>> {
        self.lock().registered.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use headgate_memory::GlobalPool;

    use super::*;
    use crate::partition::{PartitionOptions, Shared};
    use crate::spill::SpillManager;
    use crate::spill_dirs::SpillDirectories;

    #[derive(Default)]
    struct Notified(AtomicUsize);

    impl PartitionListener for Notified {
        fn partition_created(&self, _partition: &Arc<dyn ReadablePartition>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn partition(id: PartitionId) -> Arc<ResultPartition> {
        let pool = GlobalPool::new(4, 4096);
        let directories = Arc::new(SpillDirectories::new(Vec::new()));
        let disk = Arc::new(SpillManager::new(directories, Arc::default()));
        let made = ResultPartition::new(
            id,
            &PartitionOptions::all(1),
            &crate::config::BufferOptions::default(),
            &pool,
            &disk,
            Shared::default(),
        );
        made.expect("two segments of four")
    }

    const ID: PartitionId = PartitionId([1; 16]);

    #[test]
    fn spec_section_4_8_who_waits_is_told_once_when_the_partition_appears() {
        let manager = PartitionManager::default();
        let (notified, cancelled) = (Arc::new(Notified::default()), Arc::new(Notified::default()));
        let listener: Arc<dyn PartitionListener> = Arc::<Notified>::clone(&notified);
        let other: Arc<dyn PartitionListener> = Arc::<Notified>::clone(&cancelled);
        assert!(matches!(manager.find_or_wait(ID, &listener), Lookup::Waiting));
        assert!(matches!(manager.find_or_wait(ID, &other), Lookup::Waiting));
        manager.forget(ID, &other);
        assert_eq!(manager.num_waiting(), 1);
        manager.register(&partition(ID)).expect("the first of its id");
        assert_eq!((notified.0.load(Ordering::Relaxed), manager.num_waiting()), (1, 0));
        assert_eq!(cancelled.0.load(Ordering::Relaxed), 0, "a cancelled request is not notified");
        assert!(matches!(manager.find_or_wait(ID, &listener), Lookup::Found(_)));
    }

    #[test]
    fn spec_section_4_8_an_id_is_registered_once_and_never_waited_for_again() {
        let manager = PartitionManager::default();
        manager.register(&partition(ID)).expect("the first of its id");
        assert!(manager.register(&partition(ID)).is_err());
        manager.release(ID);
        let listener: Arc<dyn PartitionListener> = Arc::<Notified>::default();
        assert!(matches!(manager.find_or_wait(ID, &listener), Lookup::Gone));
        assert!(manager.register(&partition(ID)).is_err());
    }

    #[test]
    fn no_request_waits_for_a_partition_of_a_closed_environment() {
        let manager = PartitionManager::default();
        let listener: Arc<dyn PartitionListener> = Arc::<Notified>::default();
        assert!(matches!(manager.find_or_wait(ID, &listener), Lookup::Waiting));
        manager.close_all();
        assert_eq!(manager.num_waiting(), 0);
        assert!(matches!(manager.find_or_wait(ID, &listener), Lookup::Gone));
        assert!(manager.register(&partition(ID)).is_err());
    }

    #[test]
    fn released_partitions_are_remembered_in_bounded_memory() {
        let mut state = State::default();
        for number in 0..=MAX_GONE as u128 {
            state.remember(PartitionId(number.to_be_bytes()));
        }
        assert_eq!((state.gone.len(), state.oldest.len()), (MAX_GONE, MAX_GONE));
        assert!(!state.gone.contains(&PartitionId([0; 16])));
    }
}
