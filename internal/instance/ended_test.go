// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// place creates a run directory in a root of its own, with some output.
func place(t *testing.T, name, output string) (*Dir, State) {
	t.Helper()
	d, err := Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.File(OutputFile), []byte(output), 0o600); err != nil {
		t.Fatal(err)
	}
	return d, State{Name: name, PID: 7, Output: d.File(OutputFile), Command: []string{"true"}}
}

func TestKeep(t *testing.T) {
	root := filepath.Join(t.TempDir(), "lklrun")
	t.Setenv(EnvRoot, root)
	began := time.Now()
	for n := range maxEnded + 3 {
		d, s := place(t, fmt.Sprintf("run%d", n), "hello\n")
		status := n
		if err := d.Keep(s, End{Time: began.Add(time.Duration(n) * time.Second), Status: &status}); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(); err != nil { // as lklrun cleanup does
		t.Fatal(err)
	}
	if all, err := (Place{}).List(); err != nil || len(all) != 0 {
		t.Errorf("records are listed as leftovers: %v, %v", all, err)
	}
	all, err := Place{}.Ended()
	if err != nil || len(all) != maxEnded {
		t.Fatalf("%d records, %v", len(all), err)
	}
	if old, err := (Place{}).OpenEnded("run2"); old != nil || err != nil {
		t.Errorf("the oldest record: %v, %v", old, err)
	}
	// A later run of the same name replaces the record.
	d, s := place(t, "run5", "again\n")
	if err := d.Keep(s, End{Time: began.Add(time.Hour), Signal: 15}); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
	i, err := Place{}.OpenEnded("run5")
	if err != nil || i == nil || i.Ended.String() != "SIGTERM" || i.PID != 7 || i.Running {
		t.Fatalf("%+v, %v", i, err)
	}
	if text, err := os.ReadFile(i.Output); err != nil || string(text) != "again\n" {
		t.Errorf("output: %q, %v", text, err)
	}
	for path, mode := range map[string]os.FileMode{filepath.Dir(i.Dir): 0o700, i.Dir: 0o700, i.Output: 0o600, filepath.Join(i.Dir, StateFile): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
	if _, err := (Place{}).Open("run5"); err == nil || err.Error() != `instance "run5" has ended (SIGTERM); see lklctl logs run5` {
		t.Error(err)
	}
	// A damaged record can be listed and deleted.
	if err := os.WriteFile(filepath.Join(i.Dir, StateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if i, err = (Place{}).OpenEnded("run5"); err != nil || i.Ended.String() != "failed" || i.Name != "run5" {
		t.Errorf("%+v, %v", i, err)
	}
	for _, r := range all {
		if found, err := (Place{}).Forget(r.Name); !found || err != nil {
			t.Errorf("%s: %v, %v", r.Name, found, err)
		}
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("something is left: %v", err)
	}
	if found, err := (Place{}).Forget("run5"); found || err != nil {
		t.Errorf("%v, %v", found, err)
	}
}

// A run in the foreground leaves no record.
func TestKeepNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "lklrun")
	t.Setenv(EnvRoot, root)
	d, s := place(t, "web", "")
	s.Output = ""
	if err := d.Keep(s, End{}); err != nil {
		t.Error(err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// The file of a run that writes much takes little room, and its end remains.
func TestBound(t *testing.T) {
	t.Setenv(EnvRoot, filepath.Join(t.TempDir(), "lklrun"))
	d, s := place(t, "web", "")
	f, err := os.OpenFile(s.Output, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kept int64
	for n := range 20 {
		if _, err := f.Write(bytes.Repeat([]byte{'a' + byte(n)}, 1<<20)); err != nil {
			t.Fatal(err)
		}
		if kept, err = Bound(f, kept); err != nil {
			t.Skip(err) // this file system has no holes
		}
	}
	if room, err := blocks(f); err != nil || room > 3*MaxOutput {
		t.Errorf("%d bytes of the file are in use, %v", room, err)
	}
	if err := SkipHole(f, 0); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || len(text) < MaxOutput || len(text) > 3*MaxOutput || text[0] == 0 {
		t.Errorf("%d bytes after the hole, %v", len(text), err)
	}
	if err := d.Keep(s, End{Time: time.Now()}); err != nil {
		t.Fatal(err)
	}
	i, err := Place{}.OpenEnded("web")
	if err != nil || i == nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(i.Output); err != nil || !bytes.Equal(text, bytes.Repeat([]byte{'a' + 19}, MaxOutput)) {
		t.Errorf("%d bytes are kept, %v", len(text), err)
	}
	if err := d.Remove(); err != nil {
		t.Fatal(err)
	}
}

// blocks returns the number of bytes that a file uses.
func blocks(f *os.File) (int64, error) {
	var st unix.Stat_t
	err := unix.Fstat(int(f.Fd()), &st)
	return st.Blocks * 512, err
}
