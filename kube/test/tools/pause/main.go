// SPDX-License-Identifier: Apache-2.0

// Command pause is the only process of a pod's sandbox. It waits for a signal.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
}
