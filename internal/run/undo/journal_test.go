// SPDX-License-Identifier: Apache-2.0

package undo

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/host/netdev"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/test/kit"
)

// An undo that was carried out before the end of the run is removed from the
// journal, once for each time it was written. Removing a missing undo is no
// error.
func TestJournalRemove(t *testing.T) {
	dir := &instance.Dir{Path: t.TempDir()}
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	undo := func(n int) netdev.Undo { return netdev.Undo{Op: netdev.OpDeleteLink, Name: "t", Ifindex: n} }
	for _, n := range []int{1, 2, 2, 3} {
		if err := j.Add(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{2, 1, 7} {
		if err := j.remove(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Add(undo(4)); err != nil {
		t.Fatal(err)
	}
	got, err := undosIn(dir)
	if diff := cmp.Diff([]netdev.Undo{undo(2), undo(3), undo(4)}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if files, err := os.ReadDir(dir.Path); len(files) != 1 || err != nil {
		t.Errorf("beside the journal there is %v, %v", files, err)
	}
}

func undosIn(dir *instance.Dir) ([]netdev.Undo, error) {
	records, err := readJournal(dir)
	var undos []netdev.Undo
	for _, r := range records {
		undos = append(undos, r.Undo)
	}
	return undos, err
}

// A truncated write damages only its own record, not the next one.
func TestFinding17JournalLine(t *testing.T) {
	dir := &instance.Dir{Path: t.TempDir()}
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	undo := func(n int) netdev.Undo { return netdev.Undo{Op: netdev.OpDeleteLink, Name: "t", Ifindex: n} }
	if err := j.Add(undo(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"op":"delete-link","name":"t","ifin`); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 3} {
		if err := j.Add(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.remove(undo(2)); err != nil {
		t.Fatal(err)
	}
	got, err := undosIn(dir)
	if diff := cmp.Diff([]netdev.Undo{undo(1), undo(3)}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// An invalid record neither hides the others nor disappears.
func TestJournalSpoiled(t *testing.T) {
	records, err := parseJournal([]byte("{\"op\":\"a\"}\nnonsense\n{\"op\":\"b\"}\n"))
	if len(records) != 2 || records[1].Op != "b" || err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Error(records, err)
	}
}

// Records of an earlier boot need no undo. The same is true if another
// namespace has the inode number now.
func TestJournalOfTheGone(t *testing.T) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, r := range []record{
		{Undo: netdev.Undo{Op: "kept", Netns: here}, Boot: netdev.Boot(), Cookie: netdev.NetnsCookie()},
		{Undo: netdev.Undo{Op: "old boot", Netns: here}, Boot: "another"},
		{Undo: netdev.Undo{Op: "old namespace", Netns: here}, Boot: netdev.Boot(), Cookie: netdev.NetnsCookie() + 1},
		{Undo: netdev.Undo{Op: "elsewhere", Netns: "net:[1]"}, Boot: netdev.Boot(), Cookie: 1},
	} {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		text += string(line) + "\n"
	}
	records, err := parseJournal([]byte(text))
	if len(records) != 2 || records[0].Op != "kept" || records[1].Op != "elsewhere" || err != nil {
		t.Error(records, err)
	}
}

func TestJournal(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	dir := &instance.Dir{Path: t.TempDir(), Name: "x"}
	j, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []netdev.Undo{
		{Op: netdev.OpDeleteLink, Name: "a", Ifindex: 5, Netns: "net:[1]"},
		{Op: netdev.OpDeleteLink, Name: "b", Ifindex: 6, Netns: "net:[1]"},
		{Op: "other", Name: "c", Netns: "net:[1]", Old: "0", New: "1"},
	}
	for _, u := range want {
		if err := j.Add(u); err != nil {
			t.Fatal(err)
		}
	}
	// The writer died in the middle of a line.
	if _, err := j.file.WriteString(`{"op":"delete-li`); err != nil {
		t.Fatal(err)
	}
	j.Close()
	got, err := undosIn(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := os.Remove(dir.File(instance.JournalFile)); err != nil {
		t.Fatal(err)
	}
	if got, err := readJournal(dir); err != nil || got != nil {
		t.Errorf("without a journal: %v, %v", got, err)
	}
}

func TestJournalFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	err = (&Journal{file: full}).Add(netdev.Undo{Op: netdev.OpDeleteLink})
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("%v", err)
	}
}

// A record that is appended to a journal with any content can be read.
func FuzzJournal(f *testing.F) {
	f.Add([]byte("{\"op\":\"delete-link\",\"name\":\"t0\",\"ifindex\":3,\"netns\":\"net:[1]\"}\n{\"op\""))
	f.Add([]byte("\n"))
	f.Add([]byte("nonsense"))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, _ := parseJournal(append(data, "\n{\"op\":\"added\"}\n"...)) // an error concerns the other lines
		if n := len(records); n == 0 || records[n-1].Op != "added" {
			t.Fatalf("%q: %v", data, records)
		}
	})
}

// Replay undoes existing changes, ignores changes that no longer exist, and can
// be repeated.
func TestReplay(t *testing.T) {
	kit.Need(t, "ip")
	netns, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	kit.Host.Run(t, "ip", "tuntap", "add", "lj0", "mode", "tap")
	ifi, err := net.InterfaceByName("lj0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := instance.Create("replayed")
	if err != nil {
		t.Fatal(err)
	}
	j, err := Open(d)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range []netdev.Undo{
		{Op: netdev.OpDeleteLink, Name: "lj0", Ifindex: ifi.Index, Netns: netns},
		{Op: netdev.OpDeleteLink, Name: "never", Ifindex: 1 << 28, Netns: netns},
	} {
		if err := j.Add(u); err != nil {
			t.Fatal(err)
		}
	}
	j.Close()
	for range 2 {
		if err := Replay(t.Context(), d); err != nil {
			t.Error(err)
		}
		if _, err := net.InterfaceByName("lj0"); err == nil {
			t.Error("lj0 is still there")
		}
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(d.Path)); err == nil {
		t.Error("the root of run directories stays behind")
	}
}
