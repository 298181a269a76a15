//! Every operation of a script is made to fail in every way, and the reopened
//! log is compared with a model.

#[path = "faults/model.rs"]
mod model;
#[path = "faults/planted.rs"]
mod planted;
#[path = "faults/world.rs"]
mod world;

use log::testing::{Fault, FaultyDisk, Survival};
use log::*;
use model::*;
use std::sync::Arc;
use wire::Durability;
use world::*;

const SERIAL: Plan = Plan {
    seed: 1,
    steps: 200,
    durability: Durability::Synced,
    concurrent: false,
};
const CONCURRENT: Plan = Plan {
    seed: 2,
    steps: 200,
    durability: Durability::Synced,
    concurrent: true,
};
const WRITTEN: Plan = Plan {
    seed: 3,
    steps: 100,
    durability: Durability::Written,
    concurrent: true,
};

fn run(plan: Plan) -> Arc<Rig> {
    let rig = Rig::new(FaultyDisk::new(), Sabotage::None);
    World::new(rig.clone(), plan).run().unwrap();
    rig
}

fn mutates(operation: &Operation) -> bool {
    !matches!(
        operation,
        Operation::Open { .. }
            | Operation::Close { .. }
            | Operation::Read { .. }
            | Operation::ReadPlaces { .. }
            | Operation::Length { .. }
            | Operation::List { .. }
    )
}

/// After how many bytes a write is torn: every one of the headers that it
/// starts with, and some places behind them. All of these for one write of
/// four, for the others each seventh, or for all if `THALWEG_FAULTS=all`.
fn tears(number: u64, position: u64, bytes: u64) -> Vec<u64> {
    // A segment's header, a stamp and a batch header; or stamp and header.
    let headers = if position == 0 { 384 } else { 256 };
    let mut places: Vec<u64> = (1..bytes.min(headers)).collect();
    places.extend((1..8).map(|i| headers + i * bytes.saturating_sub(headers) / 8));
    places.retain(|place| (1..bytes).contains(place));
    if !number.is_multiple_of(4) && !all_faults() {
        places.retain(|place| (place + number).is_multiple_of(7));
    }
    places
}

fn all_faults() -> bool {
    std::env::var("THALWEG_FAULTS").as_deref() == Ok("all")
}

fn survival(which: u64) -> Survival {
    match which % 8 {
        0 => Survival::Nothing,
        1 => Survival::All,
        2 => Survival::Last,
        3 => Survival::Names,
        4 => Survival::Files(".log"),
        5 => Survival::Files(".data"),
        seed => Survival::Some(which * 31 + seed),
    }
}

/// A crash at every operation of the script, in every way.
fn crash_everywhere(plan: Plan, sabotage: Sabotage) -> Result<u64, String> {
    let rig = Rig::new(FaultyDisk::new(), sabotage);
    let disk = rig.disk.clone();
    let checks = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = checks.clone();
    let mut writes = 0;
    rig.set_hook(move |operation, model| {
        if !mutates(operation) {
            return Ok(());
        }
        let number = disk.operation_count();
        let check = |bytes: u64, survival: Option<Survival>, thorough: bool| {
            let fork = disk.fork();
            fork.execute_in_part(operation, bytes);
            let crash = match survival {
                Some(survival) => {
                    fork.power_loss(survival);
                    Crash::PowerLoss
                }
                None => {
                    fork.kill();
                    Crash::Killed
                }
            };
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let fork: Arc<dyn Disk> = Arc::new(fork);
            crash_and_check(fork, plan, model, crash, Allow::Nothing, thorough)
                .map_err(|error| format!("{survival:?} after {bytes} bytes: {error}"))
        };
        check(0, None, true)?;
        for which in 0..8 {
            check(
                0,
                Some(survival(number * 8 + which)),
                !(2..=5).contains(&which),
            )?;
        }
        let (Operation::Write {
            position, bytes, ..
        }
        | Operation::WriteDirect {
            position, bytes, ..
        }) = operation
        else {
            return Ok(());
        };
        let count = bytes.iter().map(|piece| piece.len() as u64).sum();
        writes += 1;
        for (index, tear) in tears(writes, *position, count).into_iter().enumerate() {
            let index = index as u64;
            match index % 3 {
                0 => check(tear, None, index.is_multiple_of(60))?,
                1 => check(tear, Some(Survival::All), index % 60 == 1)?,
                _ => check(tear, Some(survival(number + index)), index % 60 == 2)?,
            }
        }
        Ok(())
    });
    World::new(rig, plan).run()?;
    Ok(checks.load(std::sync::atomic::Ordering::Relaxed))
}

/// The script with one fault in it, to its end, and a power loss then.
fn run_with_fault(plan: Plan, number: u64, fault: Fault) -> Result<(), String> {
    let rig = Rig::new(FaultyDisk::new(), Sabotage::None);
    rig.disk.fail_at(number, fault);
    let mut world = World::new(rig.clone(), plan);
    world.faulty = true;
    world.allow = match fault {
        Fault::Flip(_) => Allow::Flip,
        Fault::Lie => Allow::Lie,
        _ => Allow::Nothing,
    };
    let allow = world.allow;
    if let Err(error) = world.run() {
        if fault == Fault::Lie && world.is_gone() {
            // The directory itself was not kept: opening says so.
            return Ok(());
        }
        return Err(format!("with {fault:?} at operation {number}: {error}"));
    }
    rig.disk.power_loss(Survival::Nothing);
    let model = rig.model.lock().unwrap().clone();
    // It was closed: nothing may be missing, and no life has ended.
    crash_and_check(rig.disk.clone(), plan, &model, Crash::Closed, allow, true)
        .map_err(|error| format!("after {fault:?} at operation {number}: {error}"))
}

fn fail_everywhere(plan: Plan) -> u64 {
    let trace = run(plan).disk.trace();
    let mut runs = 0;
    for (number, operation) in trace.iter().enumerate() {
        let number = number as u64;
        for fault in faults_of(operation, number) {
            runs += 1;
            if let Err(error) = run_with_fault(plan, number, fault) {
                panic!("{plan:?}, {operation:?}: {error}");
            }
        }
    }
    runs
}

#[test]
fn the_scripts_run_without_faults_and_reach_every_kind_of_operation() {
    for plan in [SERIAL, CONCURRENT, WRITTEN] {
        let rig = run(plan);
        let trace = rig.disk.trace();
        let mut counts = std::collections::BTreeMap::new();
        for operation in &trace {
            *counts.entry(operation.what).or_insert(0) += 1;
        }
        println!("{plan:?}: {} operations {counts:?}", trace.len());
        let direct = counts.get("write direct").is_some_and(|count| *count > 2);
        assert_eq!(direct, plan.durability == Durability::Synced, "{counts:?}");
        for what in [
            "write",
            "sync data",
            "sync directory",
            "rename",
            "remove",
            "allocate",
            "read",
        ] {
            assert!(
                counts.get(what).is_some_and(|count| *count > 2),
                "{what}: {counts:?}"
            );
        }
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_promised() {
    println!(
        "{} checks",
        crash_everywhere(SERIAL, Sabotage::None).unwrap()
    );
}

#[test]
fn a_crash_at_any_operation_of_many_at_once_loses_nothing_promised() {
    println!(
        "{} checks",
        crash_everywhere(CONCURRENT, Sabotage::None).unwrap()
    );
}

#[test]
fn a_crash_of_a_written_partition_loses_what_it_may_and_says_so() {
    println!(
        "{} checks",
        crash_everywhere(WRITTEN, Sabotage::None).unwrap()
    );
}

#[test]
fn a_failure_of_any_operation_is_survived() {
    println!("{} runs", fail_everywhere(SERIAL));
}

#[test]
fn a_failure_of_any_operation_of_many_at_once_is_survived() {
    println!("{} runs", fail_everywhere(CONCURRENT));
}

/// A crash somewhere in the script, and a fault at every operation of the
/// recovery from it.
fn fail_in_recovery(plan: Plan) -> Result<u64, String> {
    let rig = Rig::new(FaultyDisk::new(), Sabotage::None);
    let disk = rig.disk.clone();
    let checks = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = checks.clone();
    let mut crashes = 0u64;
    rig.set_hook(move |operation, model| {
        if !mutates(operation) || !model.created {
            return Ok(());
        }
        crashes += 1;
        if !crashes.is_multiple_of(7) && !all_faults() {
            return Ok(());
        }
        let crash = match crashes % 3 {
            0 => Crash::Killed,
            _ => Crash::PowerLoss,
        };
        let crashed = disk.fork();
        match crash {
            Crash::Killed => crashed.kill(),
            _ => crashed.power_loss(survival(crashes)),
        }
        // The recovery without a fault says which operations there are.
        let before = crashed.operation_count() as usize;
        let plain = Arc::new(crashed.fork());
        let opened: Arc<dyn Disk> = plain.clone();
        let boot = model.boot + u64::from(crash == Crash::PowerLoss);
        open_and_read(&opened, plan, model, boot, 0)?;
        for (index, operation) in plain.trace().iter().enumerate().skip(before) {
            let number = index as u64;
            let faults = faults_of(operation, number);
            let fault = faults[(number + crashes) as usize % faults.len()];
            let fork = Arc::new(crashed.fork());
            fork.fail_at(number, fault);
            counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let allow = match fault {
                Fault::Flip(_) => Allow::Flip,
                Fault::Lie => Allow::Lie,
                _ => Allow::Nothing,
            };
            let opened: Arc<dyn Disk> = fork.clone();
            let mut model = model.clone();
            model.power_losses += u64::from(crash == Crash::PowerLoss);
            if crash == Crash::PowerLoss {
                model.written = model.synced;
                model.boot += 1;
            }
            // Whether that succeeded or not, it was not told to anyone: the
            // process dies, or the power fails again.
            let _ = open_and_read(&opened, plan, &model, boot, 0);
            let again = match number % 2 {
                0 => Crash::Killed,
                _ => Crash::PowerLoss,
            };
            match again {
                Crash::Killed => fork.kill(),
                _ => fork.power_loss(survival(number)),
            }
            crash_and_check(opened, plan, &model, again, allow, false).map_err(|error| {
                format!("{crash:?}, {fault:?} at {operation:?} of recovery, {again:?}: {error}")
            })?;
        }
        Ok(())
    });
    World::new(rig, plan).run()?;
    Ok(checks.load(std::sync::atomic::Ordering::Relaxed))
}

#[test]
fn a_fault_in_recovery_is_survived() {
    for plan in [SERIAL, CONCURRENT, WRITTEN] {
        println!("{} checks", fail_in_recovery(plan).unwrap());
    }
}
