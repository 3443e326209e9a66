// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
)

// An Inventory records the state of the machine at one moment.
type Inventory struct {
	t       testing.TB
	nets    []*Netns
	entries map[string]bool
}

// Take lists everything that a run could leave behind. In the tests' own namespace and in
// nets, it lists devices, routes, firewall rules and reserved ports. It also lists named
// namespaces, processes, mounts, and files in /run, /tmp, /dev/shm and the repository's
// bin/.
func Take(t testing.TB, nets ...*Netns) *Inventory {
	t.Helper()
	return &Inventory{t: t, nets: nets, entries: list(t, nets)}
}

func list(t testing.TB, nets []*Netns) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	add := func(kind, text string) {
		for _, line := range strings.Split(text, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				all[kind+": "+line] = true
			}
		}
	}
	for _, n := range append([]*Netns{Host}, nets...) {
		where := strings.TrimSpace("network " + n.Name)
		// Do not use ip(8) here: it opens all named namespaces, including those of other
		// tests.
		n.Do(t, func() error {
			devices, err := net.Interfaces()
			for _, d := range devices {
				add(where+" device", d.Name)
			}
			return err
		})
		add(where+" rule", n.Run(t, "ip", "rule"))
		add(where+" route", n.Run(t, "ip", "-4", "route", "show", "table", "all"))
		add(where+" nft", n.Run(t, "nft", "list", "ruleset"))
		add(where+" reserved ports", n.Run(t, "cat", "/proc/sys/net/ipv4/ip_local_reserved_ports"))
		for _, save := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
			for _, line := range strings.Split(n.Run(t, save), "\n") {
				if strings.HasPrefix(line, "-A") {
					add(where+" "+save, line)
				}
			}
		}
	}
	add("namespace", Host.Run(t, "ip", "netns", "list"))
	for _, p := range processes() {
		add("process", p)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	add("mount", string(mounts))
	for _, dir := range []string{"/run", "/tmp", "/dev/shm", Bin("")} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path == Root() {
				return filepath.SkipDir // a clone in /tmp: its build output is not a leftover
			}
			if os.IsNotExist(err) {
				return nil // it was removed meanwhile
			}
			add("file", path)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// processes lists all processes except this one and its helpers.
func processes() []string {
	var all []string
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a constant pattern causes no error
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue // the process has ended meanwhile
		}
		cmdline, _ := os.ReadFile(dir + "/cmdline") // empty if the process has ended
		pid := filepath.Base(dir)
		if pid == "1" || pid == fmt.Sprint(os.Getpid()) {
			continue
		}
		state := ""
		if _, rest, ok := strings.Cut(string(stat), ") "); ok && strings.HasPrefix(rest, "Z") {
			state = " (zombie)"
		}
		all = append(all, fmt.Sprintf("%s %s%s", pid, strings.ReplaceAll(string(cmdline), "\x00", " "), state))
	}
	return all
}

// Left returns the additions and removals since Take.
func (i *Inventory) Left() []string {
	i.t.Helper()
	now := list(i.t, i.nets)
	var diff []string
	for e := range now {
		if !i.entries[e] {
			diff = append(diff, "new: "+e)
		}
	}
	for e := range i.entries {
		if !now[e] {
			diff = append(diff, "gone: "+e)
		}
	}
	sort.Strings(diff)
	return diff
}

// Same fails the test if anything was added or removed.
func (i *Inventory) Same() {
	i.t.Helper()
	if left := i.Left(); len(left) > 0 {
		i.t.Errorf("not as before the run:\n  %s", strings.Join(left, "\n  "))
	}
}

// Settles is like Same, but waits for processes that clean up in the background.
func (i *Inventory) Settles(limit time.Duration) {
	i.t.Helper()
	var left []string
	if !Within(limit, func() bool { left = i.Left(); return len(left) == 0 }) {
		i.t.Errorf("not as before the run, %v after its end:\n  %s", limit, strings.Join(left, "\n  "))
	}
}
