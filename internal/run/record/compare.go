// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/pkg/lab"
)

// captureFile and resultsFile are files in the results of a lab.
const (
	captureFile = "wires.pcapng"
	resultsFile = "results.json"
)

// Outcome is the outcome of a comparison.
type Outcome struct {
	Frames, Outputs int    // number of frames and outputs that are equal
	Frame           string // the first frame that differs; empty: none
	Output          string // the first line of an output, or of results.json, that differs; empty: none
}

// Compare compares recorded results in the folder of a record with those in another folder, of a
// run in Dir. The recorded run was in the folder dir.
func (r *Record) Compare(folder, results, dir string, t *lab.Topology) (o Outcome, err error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return o, plain(err)
	}
	defer root.Close()
	was, err := root.OpenRoot(Results)
	if err != nil {
		return o, fmt.Errorf("%s: %w", filepath.Join(folder, Results), bare(err))
	}
	defer was.Close()
	now, err := os.OpenRoot(results)
	if err != nil {
		return o, plain(err)
	}
	defer now.Close()
	if r.Capture {
		if o.Frames, o.Frame, err = compareFrames(was, now, t); err != nil {
			return o, err
		}
	}
	elsewhere := strings.NewReplacer(results, r.Folder, r.Dir, dir)
	for _, name := range outputs(t) {
		d, err := compareLines(was, now, name, elsewhere)
		if err != nil {
			return o, err
		}
		switch {
		case d == "":
			o.Outputs++
		case o.Output == "":
			o.Output = d
		}
	}
	return o, nil
}

// outputs returns the names of the files with outputs of a lab. results.json is last, because the
// difference of an output explains it.
func outputs(t *lab.Topology) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(t.Nodes)) {
		if len(t.Nodes[name].Run) > 0 {
			names = append(names, name+".log")
		}
	}
	for k, s := range t.Steps {
		if len(s.Run) > 0 {
			names = append(names, fmt.Sprintf("step-%d.log", k+1))
		}
	}
	return append(names, resultsFile)
}

// Clear removes the results of an earlier run of a lab from a folder.
func Clear(folder string, t *lab.Topology) error {
	for _, name := range append(outputs(t), captureFile) {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// compareFrames returns the number of equal frames before the first that differs, and that one.
func compareFrames(was, now *os.Root, t *lab.Topology) (n int, difference string, err error) {
	p, err := t.Plan()
	if err != nil {
		return 0, "", err
	}
	ends := map[string]string{}
	for _, node := range p.Nodes {
		for _, i := range node.Interfaces {
			ends[node.Name+":"+i.Name] = fmt.Sprintf("on wire %s from %s", i.Wire, node.Name)
		}
	}
	a, err := openFrames(was)
	if err != nil {
		return 0, "", err
	}
	defer a.file.Close()
	b, err := openFrames(now)
	if err != nil {
		return 0, "", err
	}
	defer b.file.Close()
	for ; ; n++ {
		x, err := a.next()
		if err != nil {
			return n, "", err
		}
		y, err := b.next()
		switch {
		case err != nil:
			return n, "", err
		case x == nil && y == nil:
			return n, "", nil
		case x == nil || y == nil || x.at != y.at || x.end != y.end || !bytes.Equal(x.data, y.data):
			return n, fmt.Sprintf("frame %d: recorded %s; replayed %s%s", n+1, x.describe(ends), y.describe(ends), otherBytes(x, y)), nil
		}
	}
}

// describe says when and where a frame was sent.
func (f *frame) describe(ends map[string]string) string {
	if f == nil {
		return "no more frames"
	}
	end := ends[f.end]
	if end == "" {
		end = fmt.Sprintf("at %q", f.end)
	}
	return fmt.Sprintf("at %.9f s %s, %d bytes", f.at.Seconds(), end, len(f.data))
}

// otherBytes says where the bytes of two frames differ, if nothing else does.
func otherBytes(x, y *frame) string {
	if x == nil || y == nil || x.at != y.at || x.end != y.end || len(x.data) != len(y.data) {
		return ""
	}
	for k := range x.data {
		if x.data[k] != y.data[k] {
			return fmt.Sprintf(", others from byte %d", k)
		}
	}
	return ""
}

// maxLine limits the length of a line that is compared; longer ones are compared in pieces.
const maxLine = 64 << 10

// wallLine matches the lines of results.json that differ in each run, or each folder.
var wallLine = regexp.MustCompile(`^ *"(wall_seconds|folder|capture)": `)

// lines reads the lines of an output.
type lines struct {
	file *os.File
	in   *bufio.Reader
	skip *regexp.Regexp
	n    int // number of the last line
}

// next returns the next line; ok is false after the last one.
func (l *lines) next() (line string, ok bool, err error) {
	for {
		l.n++
		b, err := l.in.ReadSlice('\n')
		if errors.Is(err, io.EOF) || errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if err != nil || len(b) == 0 {
			return "", false, err
		}
		if l.skip == nil || !l.skip.Match(b) {
			return string(b), true, nil
		}
	}
}

// compareLines returns the first line of an output that differs.
func compareLines(was, now *os.Root, name string, elsewhere *strings.Replacer) (string, error) {
	var both [2]*lines
	missing := 0
	for k, root := range []*os.Root{was, now} {
		f, err := open(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", root.Name(), plain(err))
		}
		defer f.Close()
		both[k] = &lines{file: f, in: bufio.NewReaderSize(f, maxLine)}
		if name == resultsFile {
			both[k].skip = wallLine
		}
	}
	switch { // a step that was not reached has no output
	case missing == 2:
		return "", nil
	case both[0] == nil:
		return name + ": only replayed", nil
	case both[1] == nil:
		return name + ": only recorded", nil
	}
	for {
		x, more, err := both[0].next()
		if err != nil {
			return "", plain(err)
		}
		y, also, err := both[1].next()
		if err != nil {
			return "", plain(err)
		}
		if name == resultsFile { // which quotes a path with spaces
			x, y = strings.ReplaceAll(x, "'", ""), strings.ReplaceAll(y, "'", "")
		}
		if y = elsewhere.Replace(y); x == y && more == also {
			if !more {
				return "", nil
			}
			continue
		}
		return fmt.Sprintf("%s:%d: recorded %s; replayed %s", name, both[0].n, quote(x, more), quote(y, also)), nil
	}
}

// maxShown limits the length of a line in a message.
const maxShown = 100

func quote(line string, ok bool) string {
	if !ok {
		return "no more lines"
	}
	line = strings.TrimSuffix(line, "\n")
	if len(line) > maxShown {
		return fmt.Sprintf("%q...", line[:maxShown])
	}
	return fmt.Sprintf("%q", line)
}
