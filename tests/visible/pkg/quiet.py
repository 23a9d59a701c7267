print("no device here")
