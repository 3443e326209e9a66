module github.com/lklrun/lklrun

go 1.26
