// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/exit"
)

func TestFail(t *testing.T) {
	for _, tc := range []struct {
		err    error
		status int
		line   string
	}{
		{nil, exit.OK, ""},
		{errors.New("no route"), exit.Failure, "prog: no route\n"},
		{errors.Join(errors.New("one"), errors.New("two")), exit.Failure, "prog: one; two\n"},
		{exit.Usagef("--if %q: no type", "x"), exit.Usage, "prog: --if \"x\": no type\n"},
		{fmt.Errorf("planning: %w", exit.Usagef("bad")), exit.Usage, "prog: planning: bad\n"},
	} {
		var b strings.Builder
		if got := Fail(&b, "prog", tc.err); got != tc.status || b.String() != tc.line {
			t.Errorf("%v: status %d, %q", tc.err, got, b.String())
		}
	}
}

func TestTable(t *testing.T) {
	tab := NewTable("NAME", ">N", "WHAT")
	tab.Row("ä", "1", "x")
	tab.Row("bcdefg", "", "yz and more")
	var b strings.Builder
	if err := tab.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "NAME    N  WHAT\nä       1  x\nbcdefg  -  yz and more\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// A narrow table fits in 80 columns and cuts no word.
func TestNarrowTable(t *testing.T) {
	name := "sysctl net.ipv6.conf.all.ignore_routes_with_linkdown"
	tab := NewTable("SETTING", "VALUE", ">N", "FROM").Narrow()
	tab.Row("stack", "mptcp", "7", "default")
	tab.Row(name, "1", "10", "the memory of the stack that was chosen, told in a long sentence")
	tab.Row("mem", strings.Repeat("v", 72), "", "a "+strings.Repeat("w", 79))
	var b strings.Builder
	if err := tab.Write(Screen{&b, 80}); err != nil {
		t.Fatal(err)
	}
	want := `SETTING  VALUE   N  FROM
stack    mptcp   7  default
` + name + `
         1      10  the memory of the stack that was chosen, told in a long
                    sentence
mem
        ` + strings.Repeat("v", 72) + `
                 -  a
 ` + strings.Repeat("w", 79) + `
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}

	// In a pipe, each row has one line.
	b.Reset()
	if err := tab.Write(&b); err != nil {
		t.Fatal(err)
	}
	if lines := strings.Split(b.String(), "\n"); len(lines) != 5 || !strings.HasSuffix(lines[2], "the memory of the stack that was chosen, told in a long sentence") {
		t.Errorf("without a terminal\n%s", b.String())
	}

	b.Reset()
	tab = NewTable("A", "B").Narrow()
	tab.Row("one", "two three")
	if err := tab.Write(Screen{&b, 80}); err != nil || b.String() != "A    B\none  two three\n" {
		t.Errorf("%v:\n%s", err, b.String())
	}
}

// Lines below a row, and a table without its heading.
func TestTableBelow(t *testing.T) {
	for _, narrow := range []bool{false, true} {
		tab := NewTable("A", "B").Bare()
		if narrow {
			tab.Narrow()
		}
		tab.Row("one", "two")
		tab.Below("  more\n")
		tab.Below("  of it\n")
		tab.Row("x", "y")
		var b strings.Builder
		if err := tab.Write(&b); err != nil || b.String() != "one  two\n  more\n  of it\nx    y\n" {
			t.Errorf("%v: %v\n%s", narrow, err, b.String())
		}
	}
}

func TestOutput(t *testing.T) {
	o := OutputTable
	if err := o.Set("json"); err != nil || o != OutputJSON {
		t.Errorf("%v, %v", o, err)
	}
	if err := o.Set("xml"); err == nil || o != OutputJSON {
		t.Errorf("%v, %v", o, err)
	}
	var b strings.Builder
	if err := WriteJSON(&b, map[string]string{"cmd": "a && b > c"}); err != nil || b.String() != "{\n  \"cmd\": \"a && b > c\"\n}\n" {
		t.Errorf("%q, %v", b.String(), err)
	}
}

// Text from another machine must not control the terminal.
func TestPlain(t *testing.T) {
	const evil = "a\x1b]0;title\a\r\u009b2Jb"
	const want = "a?]0;title???2Jb"
	var b strings.Builder
	Fail(&b, "p", errors.New(evil+"\nc\td"))
	Note(&b, "p", "%s", evil)
	table := NewTable("A")
	table.Row(evil)
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "p: "+want+"; c\td\np: "+want+"\nA\n"+want+"\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
