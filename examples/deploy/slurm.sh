#!/bin/bash
# A cluster of Thalweg on the nodes of a Slurm job: one server on each, a step of work beside them, an orderly end.
#
#   sbatch examples/deploy/slurm.sh
#
# What is not found in this file is in docs/operations/slurm.md and docs/operations/cluster.md.
#
# What was tried: it runs under Slurm 22.05 of Debian 12 with three nodes that are network namespaces of one host, to its end and
# with TERM from Slurm while the work was under way. Not tried: several hosts, a parallel file system, other versions of Slurm.
# Each run of the tests checks its syntax and its command lines (python/tests/test_deploy.py).
#SBATCH --nodes=3
#SBATCH --time=01:00:00
#SBATCH --signal=B:TERM@180
set -euo pipefail

job=$SLURM_JOB_ID
servers_count=$SLURM_JOB_NUM_NODES
# What all nodes see, for its owner alone: who can read it is a server of the cluster.
shared=$PWD/thalweg-$job
# A disk of the node. {rank} stands for the server's rank.
data=${THALWEG_LOCAL:-/tmp}/thalweg-$job
export THALWEG_GROUP_FILE=$shared/thalweg.json
mkdir -m 700 "$shared"

# The first step of a job is number 0. One server that ends takes no other one with it (--kill-on-bad-exit, --wait).
srun --overlap --nodes="$servers_count" --ntasks="$servers_count" --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 \
    --output="$shared/server-%t.log" \
    thalweg serve "$data-{rank}" --cluster "$shared/cluster" --listen tls://0.0.0.0:0 &
servers=$!
work=

# However the script ends: the servers drain, and say so in their logs.
finish() {
    trap - EXIT
    trap '' TERM
    if [ -n "$work" ]; then
        kill "$work" || true
        wait "$work" || true
    fi
    scancel --signal=TERM "$job.0" || true
    wait "$servers" || echo "not every server ended as it should: see $shared/server-*.log" >&2
}
trap finish EXIT
# Slurm sends TERM three minutes before the end of the job.
trap 'exit 143' TERM

# The first server that serves writes the group file; new topics go to the servers that are there, so all are waited for.
deadline=$((SECONDS + 180))
until [ -s "$THALWEG_GROUP_FILE" ] && [ "$(thalweg nodes list --json | wc -l)" -ge "$servers_count" ]; do
    if ! kill -0 "$servers" || [ "$SECONDS" -gt "$deadline" ]; then
        echo "the servers did not come: see $shared/server-*.log" >&2
        exit 1
    fi
    sleep 1
done
thalweg nodes list

# The work: here each task writes a topic of its own. It finds the servers by THALWEG_GROUP_FILE.
# shellcheck disable=SC2016 # the variables are those of the tasks
srun --overlap --nodes="$servers_count" --ntasks="$servers_count" --ntasks-per-node=1 bash -euo pipefail -c '
    thalweg topic create "run.$SLURM_PROCID" --if-missing
    seq 1000 | thalweg produce "run.$SLURM_PROCID"' &
work=$!
wait "$work"
work=
thalweg topic list

# What is on the nodes' own disks goes with the job: what is to stay is taken along.
for ((rank = 0; rank < servers_count; rank++)); do
    thalweg consume "run.$rank" --name archive >"$shared/run.$rank.jsonl"
done

finish
# shellcheck disable=SC2016
srun --overlap --nodes="$servers_count" --ntasks="$servers_count" --ntasks-per-node=1 \
    bash -c 'rm -r "$0-$SLURM_PROCID"' "$data"
