//! The end of the recovery of a gate's channels.

use headgate_protocol::{ChannelNotOpen, UpstreamRecoveryTracker};

#[test]
fn spec_10_14_all_channels_are_resumed_when_the_last_one_has_recovered() {
    let mut tracker = UpstreamRecoveryTracker::new(3);
    for channel in [2, 0] {
        assert_eq!(tracker.on_end_of_channel_state(channel).unwrap().count(), 0);
        assert!(!tracker.all_channels_recovered());
    }
    let twice = tracker.on_end_of_channel_state(0).map(Iterator::count);
    assert_eq!(twice, Err(ChannelNotOpen { channel: 0 }));
    let resumed: Vec<_> = tracker.on_end_of_channel_state(1).unwrap().collect();
    assert_eq!(resumed, [0, 1, 2]);
    assert!(tracker.all_channels_recovered());
    let unknown = tracker.on_end_of_channel_state(3).map(Iterator::count);
    assert_eq!(unknown, Err(ChannelNotOpen { channel: 3 }));
}
