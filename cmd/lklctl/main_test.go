// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

// result is the result of one invocation of the program.
type result struct {
	status      int
	out, errors string
}

// lklctl runs the program in the same way as main.
func lklctl(t testing.TB, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var out, errs strings.Builder
	end := run(ctx, args, &out, &errs)
	return result{end.Status, out.String(), errs.String()}
}

// ok runs the program, which must succeed, and returns its output.
func ok(t testing.TB, args ...string) string {
	t.Helper()
	r := lklctl(t, args...)
	if r.status != 0 || r.errors != "" {
		t.Fatalf("lklctl %s: %+v", strings.Join(args, " "), r)
	}
	return r.out
}

// decode runs the program with --json and parses the output. The exit status must match
// whether there are results.
func decode[T any](t testing.TB, args ...string) T {
	t.Helper()
	var v T
	r := lklctl(t, append(args, "--json")...)
	text := r.out
	empty := text == "[]\n" || text == "{}\n"
	if r.errors != "" || r.status == exit.Nothing && !empty || r.status > exit.Nothing {
		t.Fatalf("lklctl %s --json: %+v", strings.Join(args, " "), r)
	}
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("lklctl %s -o json: %v\n%s", strings.Join(args, " "), err, text)
	}
	if d.More() {
		t.Fatalf("lklctl %s -o json prints more than one document", strings.Join(args, " "))
	}
	return v
}

// refused runs the program, which must fail with status. Its error must be one line
// that contains each of wants.
func refused(t testing.TB, status int, args []string, wants ...string) {
	t.Helper()
	r := lklctl(t, args...)
	if r.status != status || r.out != "" || strings.Count(r.errors, "\n") != 1 || !strings.HasPrefix(r.errors, "lklctl: ") {
		t.Errorf("lklctl %s: status %d, stdout %q, stderr %q; want status %d and one line", strings.Join(args, " "), r.status, r.out, r.errors, status)
	}
	for _, want := range wants {
		if !strings.Contains(r.errors, want) {
			t.Errorf("lklctl %s says %q, not %q", strings.Join(args, " "), r.errors, want)
		}
	}
}

// instanceOf creates a run directory whose socket belongs to a stack host.
func instanceOf(t testing.TB, name string) (*lklhost.Host, *instance.Dir) {
	t.Helper()
	kit.Need(t)
	d, err := instance.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	})
	s := lklhost.OnHostIn(t, d.Path)
	if err := d.WriteState(&instance.State{
		Name: name, PID: os.Getpid(), HostPID: s.PID, TargetPID: 4242, Stack: "host", Kernel: "6.12.38",
		Interfaces: []instance.Interface{{Name: "eth0", Type: "tap", Host: "tap0", Addr: []string{"10.1.0.2/24"}}},
		Started:    time.Now().Add(-192 * time.Second), Command: []string{"curl", "-s", "http://example.com/"},
	}); err != nil {
		t.Fatal(err)
	}
	return s, d
}
