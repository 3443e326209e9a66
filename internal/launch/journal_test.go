// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/internal/hostnet"
	"github.com/lklrun/lklrun/internal/instance"
)

// What is undone before the run's end leaves the journal, once for each time it
// was written; what is not in it is no error.
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
	got, err := readJournal(dir)
	if diff := cmp.Diff([]hostnet.Undo{undo(2), undo(3), undo(4)}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if files, err := os.ReadDir(dir.Path); len(files) != 1 || err != nil {
		t.Errorf("beside the journal there is %v, %v", files, err)
	}
}
