// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

// A command is a shell command of a page, or its hidden preparation.
type command struct {
	Line   int           // of the page, the first is 1
	Text   string        // one or more lines
	Skip   string        // the reason for which the test does not run it
	Ctrl   time.Duration // after this time, it is ended as by Ctrl-C
	Status int           // the exit status that the page promises
}

// A mark is a comment above a code block that tells the test how to run the block, or
// those of its commands that contain a text:
//
//	<!-- not run: REASON -->
//	<!-- not run `TEXT`: REASON -->
//	<!-- Ctrl-C after 2s -->
//	<!-- Ctrl-C after 2s `TEXT` -->
//	<!-- status 123 `TEXT`: REASON -->
//
// Above a block between fences that is not of commands, a mark tells where its text belongs:
//
//	<!-- file: NAME -->    the test writes it to that file in the folder of the page
//	<!-- copy of PATH -->  the text is part of that file of the project
//
// A comment that begins with "setup" contains commands that the reader need not see. They are
// run at that place.
type mark struct {
	line int
	text string // the text that selects commands; empty: all
	used bool

	skip   string
	ctrl   time.Duration
	status int

	file string // the file that the block is written to
	copy string // the file of the project that contains the block
}

var (
	notRun   = regexp.MustCompile("^not run(?: `([^`]+)`)?:\\s*(.*)$")
	ctrlC    = regexp.MustCompile("^Ctrl-C after (\\S+)(?: `([^`]+)`)?$")
	status   = regexp.MustCompile("^status (\\d+)(?: `([^`]+)`)?:\\s*(.*)$")
	file     = regexp.MustCompile(`^file: (\S+)$`)
	copyOf   = regexp.MustCompile(`^copy of (\S+)$`)
	listItem = regexp.MustCompile(`^ *([-*]|\d+\.) +`)
	fence    = regexp.MustCompile("^ *```([a-z]*)$")
)

// parseMark parses the text of a comment.
func parseMark(text string) (mark, error) {
	if m := notRun.FindStringSubmatch(text); m != nil {
		if m[2] == "" {
			return mark{}, fmt.Errorf("no reason after \"not run\"")
		}
		return mark{text: m[1], skip: m[2]}, nil
	}
	if m := ctrlC.FindStringSubmatch(text); m != nil {
		after, err := time.ParseDuration(m[1])
		return mark{text: m[2], ctrl: after}, err
	}
	if m := status.FindStringSubmatch(text); m != nil {
		if m[3] == "" {
			return mark{}, fmt.Errorf("no reason after \"status\"")
		}
		n, err := strconv.Atoi(m[1])
		return mark{text: m[2], status: n}, err
	}
	if m := file.FindStringSubmatch(text); m != nil {
		return mark{file: m[1]}, nil
	}
	if m := copyOf.FindStringSubmatch(text); m != nil {
		return mark{copy: m[1]}, nil
	}
	return mark{}, fmt.Errorf("unknown mark %q", text)
}

// A parser reads the code blocks of a page.
type parser struct {
	name     string
	lines    []string
	n        int // the current line
	marks    []mark
	commands []command
	errs     []string
}

// parsePage returns the commands of a page, and an error for each mark or block that it cannot
// understand.
func parsePage(name, text string) ([]command, []string) {
	p := &parser{name: name, lines: strings.Split(text, "\n")}
	list := 0 // the column of the text of the current list item
	blank := true
	for p.n < len(p.lines) {
		line := p.lines[p.n]
		indent := len(line) - len(strings.TrimLeft(line, " "))
		switch item := listItem.FindString(line); {
		case strings.TrimSpace(line) == "":
			blank = true
			p.n++
			continue
		case strings.HasPrefix(strings.TrimSpace(line), "<!--"):
			p.comment()
			blank = true // a code block may follow at once
			continue
		case fence.MatchString(line):
			p.fenced(fence.FindStringSubmatch(line)[1])
		case blank && indent >= list+4:
			p.indented(list + 4)
		default:
			if item != "" {
				list = len(item)
			} else if indent == 0 {
				list = 0
			}
			p.unused()
			p.n++
		}
		blank = false
	}
	p.unused()
	return p.commands, p.errs
}

func (p *parser) errorf(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Sprintf("%s:%d: ", p.name, line)+fmt.Sprintf(format, args...))
}

// comment reads a comment: a mark or a setup.
func (p *parser) comment() {
	first := p.n
	var text []string
	for ; p.n < len(p.lines); p.n++ {
		line, _, end := strings.Cut(strings.TrimSpace(p.lines[p.n]), "-->")
		text = append(text, strings.TrimSpace(strings.TrimPrefix(line, "<!--")))
		if end {
			p.n++
			break
		}
	}
	if setup, ok := strings.CutPrefix(strings.Join(text, "\n"), "setup"); ok {
		p.unused()
		p.commands = append(p.commands, command{Line: first + 1, Text: strings.TrimSpace(strings.TrimPrefix(setup, ":"))})
		return
	}
	m, err := parseMark(strings.TrimSpace(strings.Join(text, " ")))
	if err != nil {
		p.errorf(first+1, "%v", err)
		return
	}
	m.line = first + 1
	p.marks = append(p.marks, m)
}

// fenced reads a block between fences.
func (p *parser) fenced(language string) {
	first := p.n + 1
	for p.n++; p.n < len(p.lines) && !fence.MatchString(p.lines[p.n]); p.n++ {
	}
	block := p.lines[first:p.n]
	p.n++
	switch language {
	case "sh", "console":
		p.block(first, block)
	case "":
		p.errorf(first, "the code block has no language: sh for commands, text for output")
	default: // output, a file
		p.text(first, strings.Join(block, "\n")+"\n")
	}
}

// text applies the marks above a block that is not of commands.
func (p *parser) text(first int, block string) {
	for i := range p.marks {
		m := &p.marks[i]
		switch {
		case m.file != "":
			m.used = true
			p.commands = append(p.commands, command{Line: first, Text: "cat > " + m.file + " <<'END'\n" + block + "END"})
		case m.copy != "":
			m.used = true
			if text, err := os.ReadFile(filepath.Join(kit.Root(), m.copy)); err != nil {
				p.errorf(m.line, "%v", err)
			} else if !strings.Contains(string(text), block) {
				p.errorf(first, "the code block is not part of %s", m.copy)
			}
		}
	}
	p.unused()
}

// indented reads a block that is indented by at least depth columns.
func (p *parser) indented(depth int) {
	first := p.n
	end := first
	for n := first; n < len(p.lines); n++ {
		if strings.HasPrefix(p.lines[n], strings.Repeat(" ", depth)) {
			end = n + 1
		} else if strings.TrimSpace(p.lines[n]) != "" {
			break
		}
	}
	p.n = end
	p.block(first, p.lines[first:end])
}

// block adds the commands of a code block. If the first line begins with "$ ", lines
// without that prefix are output.
func (p *parser) block(first int, lines []string) {
	session := len(lines) > 0 && strings.HasPrefix(strings.TrimSpace(lines[0]), "$ ")
	begin := len(p.commands)
	var open *command // the command continues on its next line
	for n, line := range lines {
		line = strings.TrimSpace(line)
		text, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case open != nil:
			open.Text += "\n" + line
		case line == "" || strings.HasPrefix(line, "#") || session && !prompt:
			continue
		default:
			p.commands = append(p.commands, command{Line: first + n + 1, Text: text})
			open = &p.commands[len(p.commands)-1]
		}
		if !strings.HasSuffix(line, `\`) && !strings.HasSuffix(line, "|") {
			open = nil
		}
	}
	for c := range p.commands[begin:] {
		p.mark(&p.commands[begin+c])
	}
	p.unused()
}

// mark applies the marks above the block to one of its commands.
func (p *parser) mark(c *command) {
	for i := range p.marks {
		m := &p.marks[i]
		if m.file != "" || m.copy != "" || !strings.Contains(c.Text, m.text) {
			continue
		}
		m.used = true
		switch {
		case m.skip != "":
			c.Skip = m.skip
		case m.ctrl != 0:
			c.Ctrl = m.ctrl
		default:
			c.Status = m.status
		}
	}
}

// unused reports the marks that have selected no command, and forgets all marks.
func (p *parser) unused() {
	for _, m := range p.marks {
		switch {
		case m.used:
		case m.file != "" || m.copy != "":
			p.errorf(m.line, "the mark does not stand above the text of a file")
		default:
			p.errorf(m.line, "the mark stands above no command that contains %q", m.text)
		}
	}
	p.marks = nil
}

// TestParsePage checks which commands and errors the parser finds.
func TestParsePage(t *testing.T) {
	text, err := os.ReadFile("testdata/page.md")
	if err != nil {
		t.Fatal(err)
	}
	commands, errs := parsePage("page.md", string(text))
	want := []command{
		{Line: 6, Text: "echo one   # a comment"},
		{Line: 8, Text: "echo two \\\nthree"},
		{Line: 14, Text: "echo no", Skip: "a reason of two lines"},
		{Line: 21, Text: "mkdir -p x\ncd x"},
		{Line: 29, Text: "sleep 1", Ctrl: 2 * time.Second},
		{Line: 30, Text: "false", Status: 1},
		{Line: 33, Text: "echo setup"},
		{Line: 34, Text: "echo after a comment"},
		{Line: 38, Text: "printf 1"},
		{Line: 47, Text: "echo in a list"},
		{Line: 63, Text: "echo no reason"},
		{Line: 67, Text: "echo unselected"},
		{Line: 74, Text: "cat > hello.txt <<'END'\nhello\nEND"},
		{Line: 90, Text: "echo no file"},
	}
	if d := cmp.Diff(want, commands); d != "" {
		t.Errorf("commands (-want +got):\n%s", d)
	}
	wantErrs := []string{
		"page.md:53: the code block has no language: sh for commands, text for output",
		`page.md:57: the mark stands above no command that contains ""`,
		`page.md:61: no reason after "not run"`,
		`page.md:65: the mark stands above no command that contains "absent"`,
		`page.md:69: unknown mark "nto run: a typing error"`,
		"page.md:84: the code block is not part of go.mod",
		"page.md:88: the mark does not stand above the text of a file",
	}
	if d := cmp.Diff(wantErrs, errs); d != "" {
		t.Errorf("errors (-want +got):\n%s", d)
	}
}
