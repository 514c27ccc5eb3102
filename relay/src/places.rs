//! Sessions' places: so many in all, so many for one device, which is one token.
//!
//! A device that is at its limit gets the place of a session of its own that has been silent for so long that it is dead, as
//! after a change of networks that nobody told the relay of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::rate::DeviceRate;

/// A client says something every 15 s; one that is silent for longer than two of its pings has gone.
const DEAD_AFTER: Duration = Duration::from_secs(35);

/// A session as its place knows it.
pub(crate) trait Occupant: Send + 'static {
    /// For how long nothing has come from its client.
    fn silent_for(&self) -> Duration;
    /// Ends it: another session of its device takes its place.
    fn give_way(&self);
}

/// The places of one relay.
pub(crate) struct Places<O>(Mutex<State<O>>);

struct State<O> {
    free: u32,
    per_device: usize,
    /// Bytes per second that a device may move each way.
    rate: Option<f64>,
    next: u64,
    devices: HashMap<String, Device<O>>,
}

/// What one device has.
struct Device<O> {
    sessions: Vec<(u64, O)>,
    rate: Option<Arc<DeviceRate>>,
}

/// A place that a session holds; it is free again when this is dropped.
pub(crate) struct Place<O: Occupant> {
    places: Arc<Places<O>>,
    device: String,
    number: u64,
    /// What its device's flows share.
    pub(crate) rate: Option<Arc<DeviceRate>>,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoPlace {
    #[error("the relay serves as many sessions as it may")]
    Relay,
    #[error("this token has as many sessions as it may")]
    Device,
}

impl<O: Occupant> Places<O> {
    pub(crate) fn new(sessions: u32, per_device: u32, rate: Option<f64>) -> Arc<Self> {
        let per_device = per_device as usize;
        let state = State { free: sessions, per_device, rate, next: 0, devices: HashMap::new() };
        Arc::new(Self(Mutex::new(state)))
    }

    /// A place for a session of the device.
    pub(crate) fn take(self: &Arc<Self>, device: &str, occupant: O) -> Result<Place<O>, NoPlace> {
        let mut state = self.0.lock();
        let (per_device, rate) = (state.per_device, state.rate);
        if let Some(Device { sessions: own, .. }) = state.devices.get_mut(device)
            && own.len() >= per_device
        {
            let silent = own.iter().enumerate().max_by_key(|(_, (_, occupant))| occupant.silent_for());
            let dead = silent.filter(|(_, (_, occupant))| occupant.silent_for() >= DEAD_AFTER).map(|(index, _)| index);
            let (_, dead) = own.swap_remove(dead.ok_or(NoPlace::Device)?);
            dead.give_way();
            state.free += 1;
        }
        state.free = state.free.checked_sub(1).ok_or(NoPlace::Relay)?;
        let number = state.next;
        state.next += 1;
        let fresh = || Device { sessions: Vec::new(), rate: rate.map(DeviceRate::new) };
        let own = state.devices.entry(device.to_owned()).or_insert_with(fresh);
        own.sessions.push((number, occupant));
        let rate = own.rate.clone();
        Ok(Place { places: Arc::clone(self), device: device.to_owned(), number, rate })
    }

    /// Looks at every session that has a place.
    pub(crate) fn for_each(&self, look: impl Fn(&O)) {
        self.0.lock().devices.values().flat_map(|device| &device.sessions).for_each(|(_, occupant)| look(occupant));
    }
}

impl<O: Occupant> Drop for Place<O> {
    fn drop(&mut self) {
        let mut state = self.places.0.lock();
        let Some(Device { sessions: own, .. }) = state.devices.get_mut(&self.device) else { return };
        let before = own.len();
        own.retain(|(number, _)| *number != self.number);
        // One that gave way is counted already.
        let freed = before - own.len();
        if own.is_empty() {
            state.devices.remove(&self.device);
        }
        state.free += freed as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    struct Fake {
        silent_for: Duration,
        ended: Arc<AtomicBool>,
    }

    impl Occupant for Fake {
        fn silent_for(&self) -> Duration {
            self.silent_for
        }

        fn give_way(&self) {
            self.ended.store(true, Relaxed);
        }
    }

    fn silent(seconds: u64) -> (Fake, Arc<AtomicBool>) {
        let ended = Arc::new(AtomicBool::new(false));
        (Fake { silent_for: Duration::from_secs(seconds), ended: Arc::clone(&ended) }, ended)
    }

    #[test]
    fn places_are_counted_in_all_and_for_each_device_and_come_back() {
        let places = Places::new(3, 2, None);
        let take = |device: &str| places.take(device, silent(0).0);
        let first = take("a").unwrap();
        let _second = take("a").unwrap();
        assert_eq!(take("a").err(), Some(NoPlace::Device));
        let third = take("b").unwrap();
        assert_eq!(take("c").err(), Some(NoPlace::Relay));
        drop(third);
        drop(first);
        let _others = [take("a").unwrap(), take("c").unwrap()];
        assert_eq!(take("d").err(), Some(NoPlace::Relay));
    }

    #[test]
    fn a_dead_session_gives_way_to_a_new_one_of_its_device_and_to_no_other() {
        let places = Places::new(10, 2, None);
        let (dead, dead_ended) = silent(50);
        let (alive, alive_ended) = silent(16);
        let dead_place = places.take("a", dead).unwrap();
        let _alive = places.take("a", alive).unwrap();
        let _other = places.take("b", silent(0).0).unwrap();
        assert!(!dead_ended.load(Relaxed));
        let _new = places.take("a", silent(0).0).unwrap();
        assert!(dead_ended.load(Relaxed) && !alive_ended.load(Relaxed));
        assert_eq!(places.take("a", silent(0).0).err(), Some(NoPlace::Device));
        drop(dead_place);
        assert_eq!(places.0.lock().free, 7, "a place is freed once");
    }

    #[test]
    fn the_sessions_of_a_device_share_one_rate() {
        let places = Places::new(10, 2, Some(1e6));
        let rate = |place: &Place<Fake>| Arc::as_ptr(place.rate.as_ref().unwrap());
        let [one, two] = [0, 1].map(|_| places.take("a", silent(0).0).unwrap());
        let other = places.take("b", silent(0).0).unwrap();
        assert!(rate(&one) == rate(&two) && rate(&one) != rate(&other));
    }
}
