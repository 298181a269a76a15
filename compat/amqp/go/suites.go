// Package suites names the modules whose tests are run.
package suites

import (
	_ "github.com/rabbitmq/amqp091-go"
	_ "go.uber.org/goleak"
)
