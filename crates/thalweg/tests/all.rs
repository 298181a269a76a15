//! The command and its server, as processes: one program, so that it is linked once. Tests that need a process of their own
//! stand beside it.

mod rig;

mod access;
mod amqp_bytes;
mod audit;
mod backup;
mod bench;
mod cluster;
mod commands;
mod doctor;
mod first_event;
mod flood;
mod many_clients;
mod moving;
mod operate;
mod refusals;
mod relay;
mod rules;
mod shards;
mod sharing;
mod signals;
mod startup;
mod steps;
mod tls;
mod token;
mod up;
mod view;
mod ways_in;
mod why;
mod workload;
mod workload_amqp;
mod workload_faults;
mod workload_kafka;
mod workload_redis;
mod workload_route;
