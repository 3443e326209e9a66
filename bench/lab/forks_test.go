// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"os/exec"
	"testing"
	"time"
)

// next reports new processes, and the end of its wait.
func TestForks(t *testing.T) {
	f, err := hearForks()
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	if !f.next(ctx) {
		t.Fatal("a process has begun, and nothing is heard of it")
	}
	ctx, cancel = context.WithCancel(ctx)
	ended := make(chan bool)
	go func() {
		for f.next(ctx) { // other programs start processes too
		}
		close(ended)
	}()
	cancel()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Error("it waits on")
	}
}
