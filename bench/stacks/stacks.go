// SPDX-License-Identifier: Apache-2.0

// Package stacks reads the stacks in the output of `perf script` and writes them in the
// folded format, which speedscope, flamegraph.pl and other tools display.
package stacks

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// A Frame is a function and its file.
type Frame struct{ Name, File string }

// A Node is a frame with all frames that it called.
type Node struct {
	Frame
	Count    int
	children map[Frame]*Node
}

// Children returns the children of a node, sorted by name.
func (n *Node) Children() []*Node {
	return slices.SortedFunc(maps.Values(n.children), func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
	})
}

// add counts one sample, with frames from the outermost to the innermost.
func (n *Node) add(stack []Frame, count int) {
	n.Count += count
	for _, f := range stack {
		if n.children == nil {
			n.children = map[Frame]*Node{}
		}
		c := n.children[f]
		if c == nil {
			c = &Node{Frame: f}
			n.children[f] = c
		}
		c.Count += count
		n = c
	}
}

// Kernel is the file name for the host's kernel.
const Kernel = "kernel"

// Nobody is the name for an idle CPU, and for processes without a pid in perf's pid
// namespace, because perf mixes up the names of these processes.
const Nobody = "swapper"

// Read reads the output of `perf script`. A sample is a line that begins with the
// program's name, followed by one line per frame and an empty line. The line of a frame
// contains an address, a symbol and a file in brackets; the innermost frame is first.
// In the result, the outermost frame is the thread: its name is the program's name, and
// its file is the thread's number.
func Read(r io.Reader) (*Node, error) {
	root := &Node{Frame: Frame{Name: "all"}}
	var program Frame
	var stack []Frame
	flush := func() {
		if program.Name != "" {
			stack = append(stack, program)
			slices.Reverse(stack)
			root.add(stack, 1)
		}
		program, stack = Frame{}, nil
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		switch {
		case line == "":
			flush()
		case line[0] != ' ' && line[0] != '\t':
			flush()
			program = thread(strings.Fields(line))
		case program.Name != "":
			if f, ok := frame(line); ok {
				stack = append(stack, f)
			}
		}
	}
	flush()
	return root, in.Err()
}

// thread parses a program's name and a thread's number from "NAME TID TIME: …".
func thread(words []string) Frame {
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasSuffix(w, ":") })
	switch {
	case at < 2: // no number
		return Frame{Name: words[0]}
	case words[at-1] == "0":
		return Frame{Name: Nobody, File: "0"}
	}
	return Frame{Name: words[0], File: words[at-1]}
}

// frame parses " ADDRESS SYMBOL+0xOFFSET (FILE)". The symbol and the file may be
// unknown.
func frame(line string) (Frame, bool) {
	line = strings.TrimSpace(line)
	_, rest, ok := strings.Cut(line, " ")
	at := strings.LastIndex(rest, " (")
	if !ok || at < 0 {
		return Frame{}, false
	}
	name, file := rest[:at], strings.TrimSuffix(rest[at+2:], ")")
	if i := strings.LastIndex(name, "+0x"); i > 0 {
		name = name[:i]
	}
	switch {
	case strings.HasPrefix(file, "[kernel") || strings.HasSuffix(file, ".ko"):
		file = Kernel
	default:
		file = path.Base(file)
	}
	if name == "[unknown]" {
		if file == "[unknown]" {
			return Frame{}, false // not an address
		}
		name = "?"
	}
	return Frame{Name: name, File: file}, true
}

// WriteFolded writes stacks in the usual folded format: frames from the outermost to the
// innermost, with their files, and a count.
func (n *Node) WriteFolded(w io.Writer) error {
	var walk func(n *Node, prefix string) error
	walk = func(n *Node, prefix string) error {
		own := n.Count
		for _, c := range n.Children() {
			own -= c.Count
			if err := walk(c, prefix+c.text()+";"); err != nil {
				return err
			}
		}
		if own == 0 || prefix == "" {
			return nil
		}
		_, err := fmt.Fprintf(w, "%s %d\n", strings.TrimSuffix(prefix, ";"), own)
		return err
	}
	return walk(n, "")
}

// text returns a frame as text without the separators of the folded format.
func (f Frame) text() string {
	clean := strings.NewReplacer(";", ",", " ", "_", "`", "'").Replace
	if f.File == "" {
		return clean(f.Name)
	}
	return clean(f.File) + "`" + clean(f.Name)
}
