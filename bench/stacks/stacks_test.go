// SPDX-License-Identifier: Apache-2.0

package stacks

import (
	"bytes"
	"strings"
	"testing"
)

const script = `lklhost    34  2697.134876:    1001001 cpu-clock: 
	ffffffff821f5127 exc_page_fault+0xd7 ([kernel.kallsyms])
	          1abc12 tcp_sendmsg+0x12 (/root/build/stack/liblkl.so)
	            e2bc main+0x69c (/root/bin/lklhost)
	612d73646565732f [unknown] ([unknown])

lklhost    34  2697.136364:    1001001 cpu-clock: 
	          1abc99 tcp_sendmsg+0x99 (/root/build/stack/liblkl.so)
	            e2bc main+0x69c (/root/bin/lklhost)

lklbench    35  2697.136364:    1001001 cpu-clock: 
	          4bff9f [unknown] (/usr/lib/libc.so.6)
	            e2bc std::vector<int, x>::f(int)+0x1 (/root/bin/x y)
`

const folded = "35`lklbench;x_y`std::vector<int,_x>::f(int);libc.so.6`? 1\n" +
	"34`lklhost;lklhost`main;liblkl.so`tcp_sendmsg;kernel`exc_page_fault 1\n" +
	"34`lklhost;lklhost`main;liblkl.so`tcp_sendmsg 1\n"

func TestFold(t *testing.T) {
	n, err := Read(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	if n.Count != 3 {
		t.Errorf("%d samples, expected 3", n.Count)
	}
	var b bytes.Buffer
	if err := n.WriteFolded(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != folded {
		t.Errorf("folded:\n%s\nexpected:\n%s", b.String(), folded)
	}
}

// TestNobody covers processes outside the namespace, for which perf reports an
// arbitrary name that it saw last.
func TestNobody(t *testing.T) {
	n, err := Read(strings.NewReader("cc1     0  2697.1:    1001001 cpu-clock: \n\tffffffff821f5127 do_idle+0xd7 ([kernel.kallsyms])\n\n" +
		"a b    12  2697.1:    1001001 cpu-clock: \n\t1 f+0x1 (/bin/x)\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c := n.Children(); len(c) != 2 || c[0].Frame != (Frame{"a", "12"}) || c[1].Frame != (Frame{Nobody, "0"}) {
		t.Errorf("%+v", c)
	}
}
