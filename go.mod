module isobar.dev

go 1.26.0
