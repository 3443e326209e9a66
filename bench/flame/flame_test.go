// SPDX-License-Identifier: Apache-2.0

package flame

import (
	"bytes"
	"encoding/xml"
	"io"
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

func read(t *testing.T) *Node {
	t.Helper()
	n, err := Read(strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

const folded = "lklbench;x_y`std::vector<int,_x>::f(int);libc.so.6`? 1\n" +
	"lklhost;lklhost`main;liblkl.so`tcp_sendmsg;kernel`exc_page_fault 1\n" +
	"lklhost;lklhost`main;liblkl.so`tcp_sendmsg 1\n"

func TestFold(t *testing.T) {
	n := read(t)
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
	again, err := ReadFolded(&b)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := again.WriteFolded(&b); err != nil || b.String() != folded {
		t.Errorf("read and written again (%v):\n%s", err, b.String())
	}
}

// TestNobody: processes outside the namespace have any name that perf saw last.
func TestNobody(t *testing.T) {
	n, err := ReadThreads(strings.NewReader("cc1     0  2697.1:    1001001 cpu-clock: \n\tffffffff821f5127 do_idle+0xd7 ([kernel.kallsyms])\n\n" +
		"a b    12  2697.1:    1001001 cpu-clock: \n\t1 f+0x1 (/bin/x)\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c := n.Children(); len(c) != 2 || c[0].Frame != (Frame{"a", "12"}) || c[1].Frame != (Frame{Nobody, "0"}) {
		t.Errorf("%+v", c)
	}
}

func TestFoldedErrors(t *testing.T) {
	for _, s := range []string{"alone", "a;b x"} {
		if _, err := ReadFolded(strings.NewReader(s)); err == nil {
			t.Errorf("%q: no error", s)
		}
	}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := (Graph{Name: "flame-x", Title: `a < "b"`, Root: read(t)}).WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"tcp_sendmsg (liblkl.so): 2 samples, 66.7 %", "all: 3 samples, 100.0 %", "std::vector&lt;int, x&gt;::f(int)"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

func TestEmpty(t *testing.T) {
	n, err := Read(strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if err := (Graph{Root: n}).WriteSVG(io.Discard); err != nil {
		t.Fatal(err)
	}
}
