// SPDX-License-Identifier: Apache-2.0

// Command lklctl inspects running stacks: their sockets, MPTCP connections,
// counters and settings. It can also run further programs on them. It is a
// client of the stack host's control socket.
package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	_ "github.com/lklrun/lklrun/internal/base/seccomptrap" // an app's seccomp filter traps calls
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == pluginName {
		args = append([]string{kubectlVerb}, args...)
	}
	end := run(ctx, args, os.Stdout, os.Stderr)
	stop()
	end.Exit()
}
