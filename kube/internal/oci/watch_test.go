// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/lklrun/lklrun/internal/instance"
)

// The plug-in kills only processes in the network namespace of the pod.
func TestMember(t *testing.T) {
	c := &api.Container{Pid: uint32(os.Getpid()), Mounts: []*api.Mount{
		{Destination: "/tmp", Source: "/wrong"}, {Destination: terminationLog, Source: "/log"}, {Destination: "/other", Source: "/chosen"},
	}}
	if _, err := newMember(t.TempDir(), c); err == nil {
		t.Error("a process of another network namespace is a member")
	}
	for path, want := range map[string]string{"": "/log", "/other": "/chosen", "/none": ""} {
		c.Annotations = map[string]string{noteTermination: path}
		m, err := newMember("/proc/self/ns/net", c)
		if err != nil || m.log != want {
			t.Errorf("termination message path %q: the reason goes to %q, want %q (%v)", path, m.log, want, err)
		}
	}
}

// The reason replaces the text of the container, and does not go through a symbolic link.
func TestExplain(t *testing.T) {
	t.Setenv(instance.EnvRoot, t.TempDir())
	dir := t.TempDir()
	log, link := filepath.Join(dir, "log"), filepath.Join(dir, "link")
	if err := os.WriteFile(log, []byte(strings.Repeat("x", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(log, link); err != nil {
		t.Fatal(err)
	}
	const want = "lklrun: the network stack of the pod has ended\n"
	for _, c := range []struct {
		path string
		says bool
	}{{link, false}, {log, true}} {
		member{log: c.path}.explain("x")
		text, err := os.ReadFile(log)
		if err != nil || (string(text) == want) != c.says {
			t.Errorf("%s: the file has %q (%v)", c.path, text, err)
		}
	}
}

// Of the stacks that have taken addresses over, only those of the plug-in are its own.
func TestTakenBy(t *testing.T) {
	t.Setenv(instance.EnvRoot, filepath.Join(t.TempDir(), "lklrun"))
	for id, socket := range map[string]string{"a": socketFile, "b": pluginSocket} {
		if err := (taken{Socket: socket}).keep(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(takenBy(pluginSocket), " "); got != "b" {
		t.Errorf("the plug-in has %q, want b", got)
	}
}
