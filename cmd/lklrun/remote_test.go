// SPDX-License-Identifier: Apache-2.0

//go:build !device

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/run/signals"
)

// A signal that arrives before signals are released is not lost.
func TestInterruptible(t *testing.T) {
	witness := make(chan os.Signal, 1)
	signal.Notify(witness, unix.SIGTERM)
	defer signal.Stop(witness)
	for range 500 {
		ctx, stop := interruptible(context.Background())
		if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		select {
		case <-witness:
		case <-time.After(10 * time.Second):
			t.Fatal("the signal never came")
		}
		stop()
		var sig *signals.AbortError
		if !errors.As(context.Cause(ctx), &sig) || sig.Signal != unix.SIGTERM {
			t.Fatalf("after SIGTERM the context's end is %v", context.Cause(ctx))
		}
	}
	ctx, stop := interruptible(context.Background())
	stop()
	if ctx.Err() != nil {
		t.Errorf("without a signal the context has ended: %v", context.Cause(ctx))
	}
}
