//! The size of buffers, and the measured throughput.

use std::time::Duration;

use headgate_protocol::{BufferDebloater, BufferSizeEma, ThroughputCalculator};
use proptest::prelude::*;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

#[test]
fn spec_12_01_the_average_follows_its_samples() {
    let mut ema = BufferSizeEma::new(200, 10, 200, 3);
    let shrinking =
        [(111, 13), (107, 7), (107, 7), (107, 7), (107, 7), (107, 7), (107, 13), (107, 13)];
    let sizes = shrinking.map(|(total, buffers)| ema.add(total, buffers));
    assert_eq!(sizes, [104, 59, 37, 26, 20, 17, 12, 10]);
    let growing = [(); 6].map(|()| ema.add(333, 1));
    assert_eq!(growing, [15, 22, 33, 49, 73, 109]);
}

#[test]
fn spec_12_01_the_average_of_nothing_is_the_least() {
    let mut ema = BufferSizeEma::new(200, 10, 200, 3);
    assert_eq!([(); 6].map(|()| ema.add(0, 1)), [100, 50, 25, 12, 10, 10]);
}

#[test]
fn spec_12_02_the_size_is_the_target_time_divided_among_the_buffers() {
    let debloater = || BufferDebloater::new(ms(1200), 50, BufferSizeEma::new(1100, 50, 1100, 1));
    assert_eq!(debloater().recalculate(3333, 16), Some(249));
    let (mut none, mut one) = (debloater(), debloater());
    assert_eq!(none.recalculate(333, 0), Some(399));
    assert_eq!(one.recalculate(333, 1), Some(399));
    assert_eq!(none.time_to_consume(), ms(399 * 1000 / 333));
}

#[test]
fn spec_12_04_without_throughput_it_shrinks_to_the_least_and_then_at_most_doubles() {
    let mut debloater = BufferDebloater::new(ms(1000), 0, BufferSizeEma::new(4096, 256, 4096, 1));
    assert_eq!(debloater.recalculate(0, 10), Some(256));
    assert_eq!(debloater.recalculate(0, 10), None, "nothing new to announce");
    let sizes = [(); 5].map(|()| debloater.recalculate(u64::MAX, 1));
    assert_eq!(sizes, [Some(512), Some(1024), Some(2048), Some(4096), None]);
    assert_eq!((debloater.buffer_size(), debloater.time_to_consume()), (4096, Duration::ZERO));
}

#[test]
fn spec_12_04_a_small_change_is_kept_back_unless_it_reaches_a_limit() {
    let mut debloater = BufferDebloater::new(ms(1000), 25, BufferSizeEma::new(1000, 100, 1010, 1));
    assert_eq!(debloater.recalculate(751, 1), None, "249 is less than 25 % of 1000");
    assert_eq!(debloater.buffer_size(), 1000);
    assert_eq!(debloater.recalculate(750, 1), Some(750));
    assert_eq!(debloater.recalculate(900, 1), None, "less than 25 % of 750");
    assert_eq!(debloater.recalculate(937, 1), Some(937), "25 % of 750 is cut to 187");
    assert_eq!(debloater.recalculate(1010, 1), Some(1010), "the limit itself is announced");
    assert_eq!(debloater.recalculate(2000, 1), None);
}

#[test]
fn only_time_with_buffers_to_read_counts_for_the_throughput() {
    let mut throughput = ThroughputCalculator::default();
    assert_eq!(throughput.calculate(ms(100)), None, "nothing was measured yet");
    throughput.receive(600, ms(1_000));
    throughput.pause(ms(1_200));
    throughput.pause(ms(2_000));
    throughput.receive(400, ms(5_000));
    assert_eq!(throughput.calculate(ms(5_300)), Some(2_000), "1000 bytes in 500 ms");
    assert_eq!(throughput.calculate(ms(5_300)), Some(2_000), "no time: the previous value");
    throughput.receive(50, ms(5_300));
    assert_eq!(throughput.calculate(ms(5_400)), Some(500), "time counted on");
    assert_eq!(throughput.calculate(ms(6_400)), Some(0), "a second with nothing done");
    throughput.pause(ms(6_400));
    assert_eq!(throughput.calculate(ms(9_000)), Some(0), "paused: the previous value");
}

#[test]
fn bytes_without_measured_time_count_in_the_next_calculation() {
    let mut throughput = ThroughputCalculator::default();
    throughput.receive(100, ms(1));
    throughput.pause(ms(1));
    assert_eq!(throughput.calculate(ms(1)), None);
    throughput.receive(100, ms(7));
    assert_eq!(throughput.calculate(ms(107)), Some(2_000));
}

proptest! {
    #[test]
    fn an_average_keeps_its_limits_and_at_most_doubles(
        (min, max) in (1_u32..5_000, 0_u32..500_000).prop_map(|(min, more)| (min, min + more)),
        start in any::<u32>(),
        samples in 1_u32..1_000,
        given in prop::collection::vec((0_u64..10_000_000, 0_u64..50), 1..200),
    ) {
        let mut ema = BufferSizeEma::new(start, min, max, samples);
        prop_assert!((min..=max).contains(&ema.size()));
        for (total, buffers) in given {
            let (last, wanted) = (ema.size(), total / buffers.max(1));
            let size = ema.add(total, buffers);
            prop_assert!((min..=max).contains(&size));
            prop_assert!(u64::from(size) <= 2 * u64::from(last));
            // It moves towards the wanted size and not beyond.
            let wanted = wanted.clamp(min.into(), max.into());
            let (low, high) = (wanted.min(last.into()), wanted.max(last.into()));
            prop_assert!((low..=high).contains(&size.into()), "{last} -> {size}, wanted {wanted}");
        }
    }

    #[test]
    fn an_average_reaches_the_wanted_size_from_either_limit(
        (min, max) in (1_u32..5_000, 0_u32..100_000).prop_map(|(min, more)| (min, min + more)),
        samples in 1_u32..200,
    ) {
        // At one byte per step it takes as many steps as there are bytes.
        let steps = 2_000 * u64::from(samples);
        for (start, wanted) in [(min, max), (max, min)] {
            let mut ema = BufferSizeEma::new(start, min, max, samples);
            let total = if wanted == max { u64::MAX } else { 0 };
            let taken = (0..steps).take_while(|_| ema.add(total, 1) != wanted).count();
            prop_assert!((taken as u64) < steps, "{start} stays at {}", ema.size());
        }
    }
}
