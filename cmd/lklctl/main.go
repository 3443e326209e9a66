// SPDX-License-Identifier: Apache-2.0

// Command lklctl inspects running stacks: their sockets, MPTCP connections,
// counters and settings. It can also run further programs on them. It is a
// client of the stack host's control socket.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	_ "github.com/lklrun/lklrun/internal/base/trap" // an app's seccomp filter traps calls
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	end := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	end.Exit()
}
