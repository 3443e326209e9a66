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

// placeEnv passes the placement of the measured programs to TapThreads.
const placeEnv = "LKLRUN_BENCH_PLACEMENT"

// tapThread is the beginning of the name that the host's kernel gives to threads
// that read taps of a Wire.
const tapThread = "napi/tap"

// TapThreads adds the host's kernel threads that read taps (internal/host/netdev/threaded.go)
// to the account, and those that read a device whose name begins with that of a Side to its group, each as soon as it exists, until ctx ends. It pins the threads according to
// the placement: to the single CPU, or to the CPU of the peer, because they do the peer's
// work. The threads are neither children of the benchmarks nor in their pid namespace, so
// TapThreads runs outside this namespace. It sleeps until a process starts, which is rare
// during a measurement; polling every few milliseconds took more than 1% of a CPU. If it
// returns an error, no thread is accounted.
func TapThreads(ctx context.Context, group string) error {
	news, err := hearForks()
	if err != nil {
		return fmt.Errorf("hearing of new threads: %w", err)
	}
	defer news.close()
	seen := map[string]bool{}
	for news.next(ctx) {
		all, err := os.ReadFile("/proc/2/task/2/children") // the children of kthreadd
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
			if side := sideOf(group, string(comm)); err == nil && side != "" {
				_ = os.WriteFile(filepath.Join(side, "cgroup.procs"), []byte(pid), 0)
			}
		}
		seen = now
	}
	return nil
}

// sideOf returns the group of the Side whose device a thread named comm reads, or "".
func sideOf(group, comm string) string {
	dev, isNAPI := strings.CutPrefix(comm, "napi/")
	sides, err := os.ReadDir(group)
	if err != nil || !isNAPI {
		return ""
	}
	for _, s := range sides {
		if s.IsDir() && strings.HasPrefix(dev, s.Name()) {
			return filepath.Join(group, s.Name())
		}
	}
	return ""
}

// takeThread adds one thread to the account and pins it. The thread may end at any
// moment.
func takeThread(group, pid string) {
	if group == "" {
		return // the account covers the whole machine
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

// placementIn finds the placement of the processes in the group.
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
