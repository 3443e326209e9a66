// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/host/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
)

// An undo that was carried out before the run's end is removed from the
// journal, once for each time it was written. Removing a missing one is no
// error.
func TestJournalRemove(t *testing.T) {
	dir := &instance.Dir{Path: t.TempDir()}
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	undo := func(n int) hostnet.Undo { return hostnet.Undo{Op: hostnet.OpDeleteLink, Name: "t", Ifindex: n} }
	for _, n := range []int{1, 2, 2, 3} {
		if err := j.add(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{2, 1, 7} {
		if err := j.remove(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.add(undo(4)); err != nil {
		t.Fatal(err)
	}
	got, err := undosIn(dir)
	if diff := cmp.Diff([]hostnet.Undo{undo(2), undo(3), undo(4)}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if files, err := os.ReadDir(dir.Path); len(files) != 1 || err != nil {
		t.Errorf("beside the journal there is %v, %v", files, err)
	}
}

func undosIn(dir *instance.Dir) ([]hostnet.Undo, error) {
	records, err := readJournal(dir)
	var undos []hostnet.Undo
	for _, r := range records {
		undos = append(undos, r.Undo)
	}
	return undos, err
}

// A truncated write damages only its own record, not the next one.
func TestFinding17JournalLine(t *testing.T) {
	dir := &instance.Dir{Path: t.TempDir()}
	j, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	undo := func(n int) hostnet.Undo { return hostnet.Undo{Op: hostnet.OpDeleteLink, Name: "t", Ifindex: n} }
	if err := j.add(undo(1)); err != nil {
		t.Fatal(err)
	}
	if _, err := j.file.WriteString(`{"op":"delete-link","name":"t","ifin`); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 3} {
		if err := j.add(undo(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.remove(undo(2)); err != nil {
		t.Fatal(err)
	}
	got, err := undosIn(dir)
	if diff := cmp.Diff([]hostnet.Undo{undo(1), undo(3)}, got); diff != "" || err != nil {
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

// Records of an earlier boot, or of a namespace whose number another one has
// now, need no undo.
func TestJournalOfTheGone(t *testing.T) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for _, r := range []record{
		{Undo: hostnet.Undo{Op: "kept", Netns: here}, Boot: hostnet.Boot(), Cookie: hostnet.NetnsCookie()},
		{Undo: hostnet.Undo{Op: "old boot", Netns: here}, Boot: "another"},
		{Undo: hostnet.Undo{Op: "old namespace", Netns: here}, Boot: hostnet.Boot(), Cookie: hostnet.NetnsCookie() + 1},
		{Undo: hostnet.Undo{Op: "elsewhere", Netns: "net:[1]"}, Boot: hostnet.Boot(), Cookie: 1},
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
