# The two commands of a fresh machine are `make demo` and `make test`.
# Each target is a script of its own name in scripts/.

.PHONY: help check setup wheel install demo demo-steps demo-sites demo-cluster test kill kill-sharing kill-cluster kill-steps bench bench-peers bench-against bench-steps bench-sites bench-shards bench-scenarios bench-workloads bench-scale tomography clean
.DEFAULT_GOAL := help

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1:  \2/p' $(MAKEFILE_LIST)

demo: ## a pipeline from instrument to picture, with a kill in the middle
	@scripts/setup demo
	@scripts/demo

demo-steps: ## steps of a simulation and three readers, with two kills and a replay
	@scripts/setup demo
	@scripts/demo-steps

demo-sites: ## two sites, a mirror and a tunnel between them, with cuts and kills: LONG_CUT=120 for one more cut
	@scripts/setup demo
	@scripts/demo-sites --long-cut $(or $(LONG_CUT),0)

demo-cluster: ## three servers that act as one: each is killed, one joins and one is taken out, under a pipeline and a task farm
	@scripts/setup demo
	@scripts/demo-cluster

test: setup ## every check of the repository
	@scripts/test

check: setup ## what to run before each commit: format, lints, unit tests, rules, some seeds
	@scripts/check

kill: setup ## kill the server ROUNDS=200 times under load, and audit what it kept
	@THALWEG_KILL_ROUNDS=$(or $(ROUNDS),200) scripts/kill

kill-sharing: setup ## kill and stop members of queues and groups, producers and the server, ROUNDS=200 times
	@THALWEG_KILL_ROUNDS=$(or $(ROUNDS),200) scripts/kill-sharing

kill-cluster: setup ## kill, stop and cut off servers of a cluster ROUNDS=100 times as topics move, and audit what was promised
	@THALWEG_KILL_ROUNDS=$(or $(ROUNDS),100) scripts/kill-cluster

kill-steps: setup ## kill ranks that write and read steps, and the server, ROUNDS=100 times, and audit what they were told
	@THALWEG_KILL_ROUNDS=$(or $(ROUNDS),100) scripts/kill-steps

bench: setup ## measure the event path beside the limits of this machine
	@scripts/bench

bench-peers: ## measure beside Kafka, Redis, RabbitMQ and ZeroMQ, which it sets up: ROUNDS=5 CASES="produce-1k latency"
	@scripts/bench-peers --rounds $(or $(ROUNDS),5) $(CASES)

bench-against: setup ## measure this build and another one in turn: PROGRAM=PATH_OF_ITS_THALWEG ROUNDS=3 CASES="produce-1k latency"
	@scripts/bench-against "$(PROGRAM)" --rounds $(or $(ROUNDS),3) $(CASES)

bench-steps: setup ## measure steps of arrays beside ADIOS2's SST and files, and ZeroMQ: ROUNDS=5
	@scripts/bench-steps --rounds $(or $(ROUNDS),5)

bench-sites: setup ## measure relay, gateway and TLS beside HAProxy and stunnel: REPEATS=3
	@scripts/bench-sites --repeats $(or $(REPEATS),3)

bench-shards: setup ## measure two shards beside one, each with a share of a processor: ROUNDS=5 (needs root)
	@scripts/bench-shards --rounds $(or $(ROUNDS),5)

bench-scale: wheel ## measure what partitions, topics, clients and servers cost, at three sizes each: ROUNDS=3 (needs root; an hour)
	@scripts/bench-scale --rounds $(or $(ROUNDS),3)

bench-workloads: setup ## run the published streaming experiments beside RabbitMQ, over proxies and managed services (20 minutes)
	@scripts/bench-workloads --repeat $(or $(REPEATS),1)

bench-scenarios: setup ## measure many events, many topics, parts of data, restarts, a stopped consumer (needs 45 GB)
	@scripts/bench-scenarios

tomography: setup ## a scan of published size, streamed and reconstructed, beside ZeroMQ: SCALE=0.1 RANKS=2 ROUNDS=1
	@scripts/tomography --scale $(or $(SCALE),0.1) --ranks $(or $(RANKS),2) --rounds $(or $(ROUNDS),1) $(OPTIONS)

setup: ## get this machine ready for tests (called by the others)
	@scripts/setup test

wheel: setup ## build the Python wheel and install it into .venv
	@scripts/wheel

install: ## the command, its manual pages, completions and units, and the C and C++ library, into PREFIX=/usr/local
	@scripts/install $(or $(PREFIX),/usr/local)

clean: ## remove everything that was built
	rm -rf target build dist .venv .mypy_cache .pytest_cache demo-output demo-steps-output demo-sites-output demo-cluster-output tomography-output
