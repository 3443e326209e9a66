// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
)

// A container joins the stack of its sandbox, whatever its own annotations are. Without
// that stack, it starts only if it does not ask for one.
func TestJoin(t *testing.T) {
	root := t.TempDir()
	t.Setenv(instance.EnvRoot, root)
	alive, dead := strings.Repeat("a", 64), strings.Repeat("b", 64)
	if err := os.Mkdir(filepath.Join(root, alive[:idLen]), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		notes  string
		listen string // the name of the instance that gets the listener
		err    string
	}{
		{`"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.sandbox-id": "` + alive + `"`, "", ""},
		{`"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "` + alive + `"`, alive[:idLen], ""},
		{`"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "` + dead + `"`, "", ""},
		{`"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "` + dead + `", "lklrun.dev/stack": "bbr"`, "", "has ended"},
		{`"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "../x"`, "", "../x"},
		{`"io.kubernetes.cri.container-type": "container"`, "", "missing"},
	} {
		s := parsed(t, `{"annotations": {`+c.notes+`}, "linux": {}}`)
		r, err := s.request(fromContainerd)
		if err != nil {
			t.Fatal(err)
		}
		sandbox, err := s.sandbox(fromContainerd)
		if err == nil && sandbox != "" {
			_, err = s.join(t.Context(), sandbox, r)
		}
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.notes, err, c.err)
		}
		want := ""
		if c.listen != "" {
			want = filepath.Join(root, c.listen, socketFile)
		}
		path, _ := section(section(s.all, "linux"), "seccomp")["listenerPath"].(string)
		if path != want {
			t.Errorf("%s: the listener goes to %q, want %q", c.notes, path, want)
		}
	}
}

var fromContainerd = commandLine{options: map[string]string{"--root": "/run/containerd/runc/k8s.io"}}

// TestSecondFinding07Annotations checks that annotations, which an image can set under podman,
// choose neither interfaces nor another container's stack or name: finding 7 of the second
// review. The administrator chooses interfaces by a flag, which the OCI runtime does not get.
func TestSecondFinding07Annotations(t *testing.T) {
	cri := `"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": "x", "io.kubernetes.cri.sandbox-namespace": "default", "io.kubernetes.cri.sandbox-name": "web"`
	for what, c := range map[string]struct {
		notes, flag string
		root        string
		interfaces  []string
		sandbox     string
		pod, err    bool
	}{
		"interfaces":               {notes: `"lklrun.dev/interfaces": "wire:lan"`, err: true},
		"interfaces, containerd":   {notes: `"lklrun.dev/interfaces": "wire:lan"`, root: "/run/containerd/runc/k8s.io", err: true},
		"interfaces with the flag": {notes: `"lklrun.dev/interfaces": "wire:lan"`, flag: "raw:eth0", err: true},
		"CRI":                      {notes: cri, root: "/run/containerd/runc/k8s.io", sandbox: "x", pod: true},
		"an image of CRI":          {notes: cri, root: "/run/crun"},
		"without root":             {notes: cri},
		"the flag":                 {notes: `"x": "y"`, flag: "wire:lan raw:eth1", interfaces: []string{"wire:lan", "raw:eth1"}},
	} {
		s := parsed(t, `{"annotations": {"lklrun.dev/stack": "bbr", `+c.notes+`}}`)
		line := parse([]string{"--root=" + c.root, interfacesFlag + "=" + c.flag, "create", "id"})
		r, err := s.request(line)
		if (err != nil) != c.err {
			t.Errorf("%s: %v", what, err)
		}
		if err != nil {
			continue
		}
		sandbox, err := s.sandbox(line)
		if err != nil || sandbox != c.sandbox || (r.pod != nil) != c.pod || !slices.Equal(r.interfaces, c.interfaces) {
			t.Errorf("%s: sandbox %q, pod %v, interfaces %q, %v", what, sandbox, r.pod, r.interfaces, err)
		}
	}
}

// TestSecondFinding12TakenDir checks that a folder of another user is not used: finding 12 of the
// second review.
func TestSecondFinding12TakenDir(t *testing.T) {
	t.Setenv(instance.EnvRoot, filepath.Join(t.TempDir(), "lklrun"))
	a := taken{Netns: "/x"}
	if err := a.keep("x"); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"another user": func() error { return os.Chown(takenDir(), 12345, 12345) },
		"mode 0755":    func() error { return os.Chmod(takenDir(), 0o755) },
	} {
		if err := change(); err != nil {
			t.Skip(err) // not root
		}
		if _, f, err := readTaken("x"); err == nil {
			f.Close()
			t.Errorf("%s: the file was read", what)
		}
		if err := a.keep("x"); err == nil {
			t.Errorf("%s: the file was written", what)
		}
		if err := errors.Join(os.Chown(takenDir(), os.Geteuid(), os.Getegid()), os.Chmod(takenDir(), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

// The file with a container's addresses is removed with the addresses it describes, also
// if the container's namespace has ended.
func TestGiveBack(t *testing.T) {
	t.Setenv(instance.EnvRoot, filepath.Join(t.TempDir(), "lklrun"))
	a := taken{Netns: filepath.Join(t.TempDir(), "gone"), Addresses: []address{{"eth0", "10.0.0.1/8"}}}
	if err := a.keep("x"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time, there is no file
		if err := end(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(filepath.Dir(takenFile("x"))); !os.IsNotExist(err) {
		t.Errorf("the folder remains: %v", err)
	}
}

// A stack knows the pod of its sandbox.
func TestPodName(t *testing.T) {
	const cri = `"io.kubernetes.cri.container-type": "sandbox", "lklrun.dev/stack": "bbr"`
	for notes, want := range map[string]string{
		cri + `, "io.kubernetes.cri.sandbox-name": "web", "io.kubernetes.cri.sandbox-namespace": "shop", "io.kubernetes.cri.sandbox-uid": "9f"`: "shop/web/9f",
		cri + `, "io.kubernetes.cri.sandbox-name": "web", "io.kubernetes.cri.sandbox-namespace": "shop"`:                                        "shop/web",
		cri + `, "io.kubernetes.cri.sandbox-name": "web"`:                                                                                       "",
		`"lklrun.dev/stack": "bbr"`: "",
	} {
		r, err := parsed(t, `{"annotations": {`+notes+`}}`).request(fromContainerd)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if r.pod != nil {
			got = r.pod.Flag()
		}
		if got != want {
			t.Errorf("%s: pod %q, want %q", notes, got, want)
		}
	}
}

// The administrator chooses the stack "default".
func TestDefaultStack(t *testing.T) {
	notes := map[string]string{"lklrun.dev/stack": "default"}
	for _, chosen := range []string{"", "bbr"} {
		t.Setenv("LKLRUN_STACK", chosen)
		r, err := requestOf(notes)
		if want := cmp.Or(chosen, "mptcp"); err != nil || r.stack != want {
			t.Errorf("LKLRUN_STACK=%s: %+v, %v; want %s", chosen, r, err, want)
		}
	}
}

// The command of a run ends with the network namespace of its pod.
func TestAwaitRemoval(t *testing.T) {
	path := filepath.Join(t.TempDir(), "netns")
	kit.WriteFile(t, path, "")
	end := make(chan error, 1)
	go func() { end <- awaitRemoval(path) }()
	kit.WriteFile(t, path+"2", "")
	kit.Must(t, os.Remove(path+"2"))
	select {
	case err := <-end:
		t.Fatalf("it does not wait: %v", err)
	default: // another file ends nothing
	}
	kit.Must(t, os.Remove(path))
	select {
	case err := <-end:
		kit.Must(t, err)
	case <-time.After(kit.Limit):
		t.Error("it does not end")
	}
	kit.Must(t, awaitRemoval(path))
}

// The files of ended namespaces do not remain, and those of others do.
func TestDropTaken(t *testing.T) {
	t.Setenv(instance.EnvRoot, filepath.Join(t.TempDir(), "lklrun"))
	netns := filepath.Join(t.TempDir(), "netns")
	kit.WriteFile(t, netns, "")
	kit.Must(t, taken{Netns: netns}.keep("lives"), taken{Netns: netns + "2"}.keep("ended"))
	dropTaken()
	if _, err := os.Lstat(takenFile("lives")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(takenFile("ended")); err == nil {
		t.Error("the file of an ended namespace remains")
	}
}
