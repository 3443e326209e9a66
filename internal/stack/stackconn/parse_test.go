// SPDX-License-Identifier: Apache-2.0

package stackconn

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// dirents contains two entries as getdents64 wrote them: ".", "eth0".
var dirents = []byte{
	1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 24, 0, 4, '.', 0, 0, 0, 0,
	2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 24, 0, 10, 'e', 't', 'h', '0', 0,
}

func TestDirents(t *testing.T) {
	got, err := parseDirents(nil, dirents)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]DirEntry{{Name: "eth0", Type: 10}}, got); diff != "" {
		t.Error(diff)
	}
	for n := range dirents {
		if n%24 != 0 {
			if _, err := parseDirents(nil, dirents[:n]); err == nil {
				t.Errorf("the first %d bytes were accepted", n)
			}
		}
	}
}

func FuzzDirents(f *testing.F) {
	f.Add(dirents)
	f.Add(dirents[:30])
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = parseDirents(nil, b) // must return
	})
}

// acks contains an acknowledgement of rtnetlink, twice.
var acks = []byte{
	36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 16, 0, 5, 6, 1, 0, 0, 0, 9, 0, 0, 0,
	17, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 9, 0, 0, 0, 7,
}

func TestNetlinkDatagram(t *testing.T) {
	msgs, err := parseNetlink(acks)
	if err != nil || len(msgs) != 2 || len(msgs[0].Data) != 20 || len(msgs[1].Data) != 1 || msgs[1].Header.PID != 9 {
		t.Errorf("%+v, %v", msgs, err)
	}
	for _, n := range []int{1, 15, 16, 35, 37, 51, 52} {
		if _, err := parseNetlink(acks[:n]); err == nil {
			t.Errorf("the first %d bytes were accepted", n)
		}
	}
}

func FuzzNetlink(f *testing.F) {
	f.Add(acks)
	f.Add(acks[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		msgs, err := parseNetlink(b)
		total := 0
		for _, m := range msgs {
			total += len(m.Data) + 16
		}
		if err == nil && total > len(b) {
			t.Errorf("%d bytes of messages in %d", total, len(b))
		}
	})
}
