// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An Account measures the CPU time of everything that the benchmarks run: clients,
// servers, lklrun and lklhost, and the kernel's work for them while they run. The
// Account is a control group, or the whole machine if there is no control group.
//
// Measured programs inherit the accounting file as descriptor 3
// (native/bench.h).
type Account struct {
	What string // description for the report
	file *os.File
}

// AccountEnv passes the group's directory to the process inside it.
const AccountEnv = "LKLRUN_BENCH_CGROUP"

// MakeGroup creates a control group for a run, and returns "" if that is not possible.
// The caller removes the group when no process of the run is left.
func MakeGroup() string {
	name := "lklrun-bench-" + strconv.Itoa(os.Getpid())
	for _, root := range []string{"/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		for _, f := range []string{"cpuacct.usage", "cpu.stat"} {
			if _, err := os.Stat(filepath.Join(dir, f)); err == nil {
				return dir
			}
		}
		_ = os.Remove(dir) // it has no CPU accounting, or is a plain directory
	}
	return ""
}

// EnterGroup moves this process into the group, and returns the group's account.
func EnterGroup(dir string) (*Account, error) {
	if dir != "" {
		// 0 means the writing process. Its pid outside this namespace is not
		// needed.
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0); err != nil {
			return nil, fmt.Errorf("entering the control group: %w", err)
		}
		for f, what := range map[string]string{"cpuacct.usage": "a cpuacct control group (version 1)", "cpu.stat": "a control group's cpu.stat (version 2)"} {
			if file, err := os.Open(filepath.Join(dir, f)); err == nil {
				return &Account{What: what + ": the time of all processes measured", file: file}, nil
			}
		}
	}
	file, err := os.Open("/proc/stat")
	if err != nil {
		return nil, err
	}
	return &Account{What: "/proc/stat: all that the machine did, in steps of 10 ms, for no control group could be made", file: file}, nil
}

// Seconds returns the CPU time used so far.
func (a *Account) Seconds() float64 {
	b := make([]byte, 512)
	n, err := a.file.ReadAt(b, 0)
	if n == 0 && err != nil {
		return 0
	}
	return parseAccount(b[:n])
}

// parseAccount parses the CPU time, in seconds, from any of the three files.
func parseAccount(b []byte) float64 {
	words := strings.Fields(string(b[:max(0, bytes.IndexByte(b, '\n'))]))
	switch {
	case len(words) == 1: // nanoseconds
		ns, _ := strconv.ParseFloat(words[0], 64)
		return ns / 1e9
	case len(words) == 2 && words[0] == "usage_usec":
		us, _ := strconv.ParseFloat(words[1], 64)
		return us / 1e6
	case len(words) >= 8 && words[0] == "cpu": // user nice system idle iowait irq softirq, at 100 Hz
		sum := 0.0
		for _, i := range []int{1, 2, 3, 6, 7} {
			ticks, _ := strconv.ParseFloat(words[i], 64)
			sum += ticks
		}
		return sum / 100
	}
	return 0
}

// RemoveGroup removes a group whose processes have ended.
func RemoveGroup(dir string) error {
	if dir == "" {
		return nil
	}
	var err error
	for end := time.Now().Add(SetupLimit); time.Now().Before(end); {
		if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return fmt.Errorf("removing the control group: %w", err)
}
