// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// placeEnv tells the placement of whoever is measured, to TapThreads.
const placeEnv = "LKLRUN_BENCH_PLACEMENT"

// tapThread is how the host calls a thread that reads a tap of a Wire's.
const tapThread = "napi/tap"

// TapThreads takes the host's threads that read taps (internal/hostnet/threaded.go)
// into the account until ctx ends, each as soon as it is there, and pins it as the
// placement says: to the one CPU, or to the peer's, whose work it does. They are
// no children of the benchmarks' and not in their process namespace, so this runs
// outside. It sleeps until something has begun, which is rare while something is
// measured: to look every few milliseconds took a percent of a CPU and more. The
// error says that no thread is taken.
func TapThreads(ctx context.Context, group string) error {
	news, err := hearForks()
	if err != nil {
		return fmt.Errorf("hearing of new threads: %w", err)
	}
	defer news.close()
	seen := map[string]bool{}
	for news.next(ctx) {
		all, err := os.ReadFile("/proc/2/task/2/children") // kthreadd's
		if err != nil {
			return err
		}
		now := map[string]bool{}
		for _, pid := range strings.Fields(string(all)) {
			if now[pid] = true; seen[pid] {
				continue
			}
			comm, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
			if err == nil && bytes.HasPrefix(comm, []byte(tapThread)) {
				takeThread(group, pid)
			}
		}
		seen = now
	}
	return nil
}

// takeThread does what TapThreads says; a thread may end at any moment.
func takeThread(group, pid string) {
	if group == "" {
		return // the account is all of the machine's
	}
	_ = os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(pid), 0)
	cpu, pinned := map[Placement]int{OneCPU: 0, TwoCPUs: 1}[placementIn(group)]
	n, err := strconv.Atoi(pid)
	if err != nil || !pinned {
		return
	}
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(n, &set)
}

// placementIn finds the placement among the processes of the group.
func placementIn(group string) Placement {
	procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return ""
	}
	for _, pid := range strings.Fields(string(procs)) {
		env, err := os.ReadFile(filepath.Join("/proc", pid, "environ"))
		if err != nil {
			continue
		}
		for _, v := range bytes.Split(env, []byte{0}) {
			if p, ok := bytes.CutPrefix(v, []byte(placeEnv+"=")); ok {
				return string(p)
			}
		}
	}
	return ""
}
