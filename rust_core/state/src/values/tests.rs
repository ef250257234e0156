use std::collections::BTreeMap;

use arrow_array::{Int64Array, StringArray};
use proptest::prelude::*;

use super::*;

type Value = Option<(Option<i64>, Option<String>)>;

fn fields() -> Fields {
    let number = Field::new("number", DataType::Int64, false);
    Fields::from(vec![number, Field::new("text", DataType::Utf8, true)])
}

/// Structs, of which a field that may not be null is null.
fn structs(values: &[Value]) -> ArrayRef {
    let fields = fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    let numbers = values.iter().map(|value| value.as_ref().and_then(|value| value.0));
    let texts = values.iter().map(|value| value.as_ref().and_then(|value| value.1.as_deref()));
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from_iter(numbers)), Arc::new(StringArray::from_iter(texts))];
    let nulls = values.iter().map(Option::is_some).collect::<Vec<_>>().into();
    Arc::new(StructArray::new(fields, columns, Some(nulls)))
}

fn few(rows: usize) -> Values {
    Values {
        limits: Limits { rows, bytes: 1 << 20 },
        ..Values::new(&DataType::Struct(fields()), &StateMemory::default())
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Values, each at one of some slots.
    Put(Vec<(usize, Value)>),
    Drop(Vec<usize>),
    Freeze,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let text = prop::option::of("[ab]{0,3}");
    let value = prop::option::of((prop::option::of(0..9_i64), text));
    let step = prop_oneof![
        4 => prop::collection::vec((0..40_usize, value), 0..12).prop_map(Step::Put),
        2 => prop::collection::vec(0..40_usize, 0..12).prop_map(Step::Drop),
        1 => Just(Step::Freeze),
    ];
    prop::collection::vec(step, 0..80)
}

/// Compares the values of slots with those of a model.
fn check(frozen: &FrozenValues, positions: &[i64], model: &[Option<Value>]) {
    let shown: Vec<Value> = model.iter().map(|value| value.clone().flatten()).collect();
    assert_eq!(&frozen.take(positions).unwrap(), &structs(&shown));
}

proptest! {
    #[test]
    fn values_are_a_list(steps in steps(), rows in 1..64_usize) {
        let mut values = few(rows);
        let mut positions = vec![0; 40];
        let mut model: Vec<Option<Value>> = vec![None; 40];
        let mut frozen = Vec::new();
        for step in steps {
            match step {
                Step::Put(put) => {
                    let replaced: Vec<_> = put.iter().map(|(slot, _)| positions[*slot]).collect();
                    let all: Vec<_> = put.iter().map(|(_, value)| value.clone()).collect();
                    let first = values.put(&structs(&all), &replaced).unwrap();
                    let mut twice = Vec::new();
                    for (position, (slot, value)) in (first..).zip(put) {
                        // The last value of a slot counts.
                        twice.extend((positions[slot] >= first).then_some(positions[slot]));
                        positions[slot] = position;
                        model[slot] = Some(value);
                    }
                    values.drop_at(&twice).unwrap();
                }
                Step::Drop(slots) => {
                    let dropped: Vec<_> = slots.iter().map(|&slot| positions[slot]).collect();
                    values.drop_at(&dropped).unwrap();
                    for slot in slots {
                        positions[slot] = 0;
                        model[slot] = None;
                    }
                }
                Step::Freeze => frozen.push((values.freeze(), positions.clone(), model.clone())),
            }
            check(&values.freeze(), &positions, &model);
            let alive: usize = values.arrays.iter().map(|held| held.alive).sum();
            prop_assert_eq!(alive, model.iter().flatten().count());
            prop_assert!(values.arrays.iter().all(|held| held.alive > 0));
        }
        for (frozen, positions, model) in frozen {
            check(&frozen, &positions, &model);
        }
    }

    #[test]
    fn structs_get_fields(sizes in prop::collection::vec(1..5_usize, 0..20)) {
        let mut values = few(64);
        let (mut all, mut positions) = (Vec::new(), Vec::new());
        for rows in sizes {
            let put: Vec<Value> = (0..rows).map(|n| (n % 3 > 0).then_some((Some(1), None))).collect();
            let first = values.put(&structs(&put), &[]).unwrap();
            positions.extend((first..).take(rows));
            all.extend(put);
        }
        let new = Field::new("new", DataType::Utf8, true);
        let more: Fields = fields().iter().cloned().chain([Arc::new(new)]).collect();
        let evolved = values.evolved(&DataType::Struct(more)).unwrap().freeze();
        let evolved = evolved.take(&positions).unwrap();
        let old = structs(&all);
        prop_assert_eq!(evolved.nulls().map_or(0, |n| n.null_count()), old.null_count());
        prop_assert_eq!(&evolved.as_struct().columns()[..2], old.as_struct().columns());
        prop_assert_eq!(evolved.as_struct().column(2).null_count(), all.len());
    }
}

#[test]
fn a_value_moves_few_times_and_no_call_moves_all() {
    let mut values = few(1 << 12);
    let (mut most, mut arrays) = (0, 0);
    for n in 0..20_000 {
        let before = values.moved;
        values.put(&structs(&[Some((Some(n), None))]), &[]).unwrap();
        most = most.max(values.moved - before);
        arrays = arrays.max(values.arrays.len());
    }
    assert!(most <= 1 << 12, "{most}");
    assert!(values.moved <= 4 * 20_000, "{}", values.moved);
    assert!(arrays <= 64, "{arrays}");
}

#[test]
fn the_rest_of_values_that_come_and_go_is_small() {
    let mut values = few(1 << 12);
    let mut kept = BTreeMap::new();
    for n in 0..4000_i64 {
        let batch: Vec<Value> = (0..20).map(|_| Some((Some(n), Some("x".repeat(9))))).collect();
        let first = values.put(&structs(&batch), &[]).unwrap();
        // One of a thousand stays for ever.
        let keep = i64::from(n % 50 == 0);
        kept.extend((keep == 1).then_some((first, n)));
        values.drop_at(&(first + keep..first + 20).collect::<Vec<_>>()).unwrap();
        assert!(values.len() <= 2 * kept.len() + 40, "{} of {}", values.len(), kept.len());
    }
    assert!(values.arrays.len() <= 30, "{}", values.arrays.len());
    let positions: Vec<_> = kept.keys().copied().collect();
    let taken = values.freeze().take(&positions).unwrap();
    let numbers = Int64Array::from_iter_values(kept.values().copied());
    assert_eq!(taken.as_struct().column(0).as_ref(), &numbers as &dyn Array);
}

#[test]
fn values_of_other_types_and_positions_without_values_are_refused() {
    let mut values = Values::new(&DataType::Utf8, &StateMemory::default());
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let first = values.put(&texts, &[]).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    assert!(matches!(values.put(&numbers, &[first]), Err(ValuesError::Arrow(_))));
    assert_eq!(&values.freeze().take(&[first]).unwrap(), &texts);
    for wrong in [-1, first + 1, i64::MAX] {
        let taken = values.freeze().take(&[wrong]);
        assert!(matches!(taken, Err(ValuesError::NoValue(position)) if position == wrong));
    }
    values.drop_at(&[first]).unwrap();
    assert!(values.is_empty());
}

#[test]
fn more_text_than_an_array_can_hold_stays_in_several() {
    let mut values = Values::new(&DataType::Utf8, &StateMemory::default());
    let large: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(1 << 20); 65]));
    let mut first = 0;
    for _ in 0..32 {
        // The arrays share their memory.
        first = values.put(&large, &[]).unwrap();
    }
    let positions: Vec<_> = (1..first + 65).collect();
    assert!(matches!(values.freeze().take(&positions), Err(ValuesError::Arrow(_))));
    let three = values.freeze().take(&[1, first + 64, 0]).unwrap();
    assert_eq!((three.len(), three.null_count()), (3, 1));
}

#[test]
fn large_arrays_are_in_files_and_leave_none() {
    let memory = StateMemory::limited(0, vec![]);
    let mut values = Values::new(&DataType::Utf8, &memory);
    let text = |n: i64| format!("a text of number {n:0100}");
    for first in (0..20_000).step_by(1000) {
        let texts: ArrayRef =
            Arc::new(StringArray::from_iter_values((first..first + 1000).map(text)));
        assert_eq!(values.put(&texts, &[]).unwrap(), first + 1);
    }
    assert!(memory.usage().in_files > 1_500_000, "{:?}", memory.usage());
    let some = values.freeze();
    values.drop_at(&(1..=20_000).filter(|n| n % 5 > 0).collect::<Vec<_>>()).unwrap();
    let taken = some.take(&[7, 20_000, 3]).unwrap();
    assert_eq!(
        &taken,
        &(Arc::new(StringArray::from(vec![text(6), text(19_999), text(2)])) as ArrayRef)
    );
    drop((some, values));
    assert_eq!(memory.usage(), crate::Usage::default());
}

#[test]
fn one_large_array_is_in_files_at_once() {
    let memory = StateMemory::limited(0, vec![]);
    let mut values = Values::new(&DataType::Utf8, &memory);
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..4000).map(|n| format!("{n:0100}"))));
    values.put(&texts, &[]).unwrap();
    assert!(memory.usage().in_files >= 400_000, "{:?}", memory.usage());
    assert_eq!(&values.freeze().take(&(1..=4000).collect::<Vec<_>>()).unwrap(), &texts);
    drop(values);
    assert_eq!(memory.usage(), crate::Usage::default());
}
